# Compiler settings and the three functions by which every target of the project is declared.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

set(HBMTUNE_SANITIZE "" CACHE STRING "Sanitizers, as -fsanitize= takes them; empty for none")
if(HBMTUNE_SANITIZE)
  add_compile_options(-fsanitize=${HBMTUNE_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${HBMTUNE_SANITIZE})
endif()

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()

# g++ 12 sees overlaps in std::string's operator+ that are not there (GCC bug 105651).
set(HBMTUNE_WARNINGS -Wall -Wextra -Werror -Wno-restrict)

# hbmtune_library(NAME SOURCES … [DEPS …]): a static library, warnings are errors.
function(hbmtune_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PUBLIC ${ARG_DEPS})
  target_compile_options(${name} PRIVATE ${HBMTUNE_WARNINGS})
endfunction()

# hbmtune_executable(NAME SOURCES … [DEPS …]): a program in <build>/bin.
function(hbmtune_executable name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS})
  target_compile_options(${name} PRIVATE ${HBMTUNE_WARNINGS})
endfunction()

# hbmtune_test(NAME SOURCES … [DEPS …] [TIMEOUT s] [SANITIZE address thread] [ALONE]): a GoogleTest
# program, one CTest entry. Data files are found through HBMTUNE_TEST_DATA (tests/data). SANITIZE
# names the sanitizers under which deploy/check.sh runs it too. ALONE: it computes on every core, so
# that nothing runs beside it.
function(hbmtune_test name)
  cmake_parse_arguments(ARG "ALONE" "TIMEOUT" "SOURCES;DEPS;SANITIZE" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  # The tests' own code decides no speed, and at -O3 takes 40 % longer to compile.
  target_compile_options(${name} PRIVATE ${HBMTUNE_WARNINGS} $<$<CONFIG:Release>:-O1>)
  target_compile_definitions(${name} PRIVATE
    HBMTUNE_TEST_DATA="${CMAKE_SOURCE_DIR}/tests/data"
    HBMTUNE_BINARY_DIR="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME ${name} COMMAND ${name})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} RUN_SERIAL ${ARG_ALONE})
  foreach(sanitizer IN LISTS ARG_SANITIZE)
    set_property(TEST ${name} APPEND PROPERTY LABELS ${sanitizer})
    add_dependencies(${sanitizer}_tests ${name})
  endforeach()
  # libgomp is not instrumented, and its barriers look like races: one thread has none. A rank that
  # is a forked process only fails at its first race. What malloc cannot give is a null pointer
  # there too, as check.sh has it for the address sanitizer.
  if(HBMTUNE_SANITIZE MATCHES thread)
    set_tests_properties(${name} PROPERTIES
      ENVIRONMENT "OMP_NUM_THREADS=1;TSAN_OPTIONS=halt_on_error=1:allocator_may_return_null=1")
  endif()
endfunction()

# hbmtune_benchmark(NAME SOURCES … [DEPS …]): a Google Benchmark program in <build>/bench, never run
# by CTest. Built by the target `benchmarks`, not by `all`.
function(hbmtune_benchmark name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} EXCLUDE_FROM_ALL ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} benchmark::benchmark)
  target_compile_options(${name} PRIVATE ${HBMTUNE_WARNINGS})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
  add_dependencies(benchmarks ${name})
endfunction()
