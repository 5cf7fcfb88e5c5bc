#include "kernels/device/profile_text.h"

#include <cstdio>

#include "kernels/core/visit.h"

namespace hbmtune::device {
namespace {

std::string Number(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return quoted + "\"";
}

}  // namespace

std::string ProfileText(const DeviceProfile& profile, const std::string& heading) {
  std::string text;
  if (!heading.empty()) text = "# " + heading + "\n\n";
  text += "name = " + Quoted(profile.name) + "\ntitle = " + Quoted(profile.title) +
          "\narchitecture = " + Quoted(profile.architecture) + "\n";
  DeviceProfile::VisitFigures(profile, [&](const Field& field, const Figure& figure) {
    text += "\n[" + std::string(field.name) + "]\n";
    if (figure.known()) text += "value = " + Number(figure.value) + "\n";
    text += "kind = " + Quoted(std::string(Name(figure.kind))) + "\nsource = " +
            Quoted(figure.source) + "\n";
  });
  for (const OpPoint& point : profile.op_points) {
    text += "\n[[op_points]]\nop = " + Quoted(point.op) +
            "\ndtype = " + Quoted(std::string(Name(point.dtype)));
    if (point.m > 0) {
      text += "\nm = " + std::to_string(point.m) + "\nn = " + std::to_string(point.n) +
              "\nk = " + std::to_string(point.k);
    }
    text += "\nwork = " + Number(point.work) + "\nseconds = " + Number(point.seconds) + "\n";
  }
  return text;
}

}  // namespace hbmtune::device
