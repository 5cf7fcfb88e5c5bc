// fake_node ROOT mi210|mi300x COUNT: builds a sysfs tree for tests that need it on disk.
#include <cstdlib>
#include <iostream>
#include <string>

#include "tests/support/fake_node.h"

int main(int argc, char** argv) {
  using hbmtune::testing::CardKind;
  const std::string kind = argc == 4 ? argv[2] : "";
  if (kind != "mi210" && kind != "mi300x") {
    std::cerr << "usage: fake_node ROOT mi210|mi300x COUNT\n";
    return 2;
  }
  hbmtune::testing::FakeNode node(argv[1]);
  for (int i = 0; i < std::atoi(argv[3]); ++i) {
    node.AddGpu(kind == "mi210" ? CardKind::kMi210 : CardKind::kMi300x, i);
  }
  return 0;
}
