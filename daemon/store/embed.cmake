# Writes OUTPUT, which defines EmbeddedMigrations(), from the files NNNN_name.sql in DIRECTORY.
# Run as a script: cmake -DDIRECTORY=… -DOUTPUT=… -P embed.cmake

file(GLOB files ${DIRECTORY}/[0-9][0-9][0-9][0-9]_*.sql)
list(SORT files)
set(entries "")
set(expected 0)
foreach(file IN LISTS files)
  get_filename_component(name ${file} NAME)
  math(EXPR expected "${expected} + 1")
  string(SUBSTRING ${name} 0 4 digits)
  string(REGEX REPLACE "^0+" "" version ${digits})
  if(NOT version EQUAL expected)
    message(FATAL_ERROR "migrations/${name}: the next number is ${expected}")
  endif()
  file(READ ${file} sql)
  string(APPEND entries "    {${version}, \"${name}\", R\"sql(${sql})sql\"},\n")
endforeach()
file(WRITE ${OUTPUT} "#include \"daemon/store/migrations.h\"

namespace hbmtune::daemon {

std::span<const Migration> EmbeddedMigrations() {
  static constexpr Migration kMigrations[] = {
${entries}  };
  return kMigrations;
}

}  // namespace hbmtune::daemon
")
