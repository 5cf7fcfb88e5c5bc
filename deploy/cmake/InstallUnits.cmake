# Run by `cmake --install`: the units of SYSTEMD_SOURCE with the paths of this installation, and the
# daemon's settings, unless there are some. Under /usr they are in /etc, elsewhere in PREFIX/etc.

cmake_path(SET prefix NORMALIZE "${CMAKE_INSTALL_PREFIX}")
cmake_path(ABSOLUTE_PATH BINDIR BASE_DIRECTORY "${prefix}" NORMALIZE OUTPUT_VARIABLE programs)
set(settings "${prefix}/etc/hbmtune")
if(prefix STREQUAL "/usr")
  set(settings "/etc/hbmtune")
endif()

foreach(name hbmtuned.service hbmtune-probe@.service)
  file(READ "${SYSTEMD_SOURCE}/${name}" unit)
  string(REPLACE "=/usr/bin/hbmtune" "=${programs}/hbmtune" unit "${unit}")
  string(REPLACE " /etc/hbmtune/" " ${settings}/" unit "${unit}")
  set(target "${prefix}/lib/systemd/system/${name}")
  message(STATUS "Installing: $ENV{DESTDIR}${target}")
  file(WRITE "$ENV{DESTDIR}${target}" "${unit}")
  list(APPEND CMAKE_INSTALL_MANIFEST_FILES "${target}")
endforeach()

set(target "${settings}/hbmtuned.toml")
if(EXISTS "$ENV{DESTDIR}${target}")
  message(STATUS "Left as it is: $ENV{DESTDIR}${target}")
else()
  file(INSTALL DESTINATION "${settings}" TYPE FILE FILES "${SYSTEMD_SOURCE}/hbmtuned.toml")
endif()
