# cmake -DOUT=file.cc -DFILES="a.toml;b.toml" -P embed.cmake: writes the files as string literals.
set(entries "")
foreach(file IN LISTS FILES)
  get_filename_component(name ${file} NAME_WE)
  file(READ ${file} text)
  string(APPEND entries "    {\"${name}\", R\"toml(${text})toml\"},\n")
endforeach()
file(WRITE ${OUT} "#include \"kernels/device/profiles/embedded.h\"

namespace hbmtune::device {
namespace {

constexpr EmbeddedProfile kProfiles[] = {
${entries}};

}  // namespace

std::span<const EmbeddedProfile> EmbeddedProfiles() { return kProfiles; }

}  // namespace hbmtune::device
")
