# Writes OUTPUT, which defines StatusPageHtml(), from the file PAGE.
# Run as a script: cmake -DPAGE=… -DOUTPUT=… -P embed.cmake

file(READ ${PAGE} html)
file(WRITE ${OUTPUT} "#include \"daemon/http/status_page.h\"

namespace hbmtune::daemon {

std::string_view StatusPageHtml() {
  return R\"html(${html})html\";
}

}  // namespace hbmtune::daemon
")
