#include <cstdio>
#include <memory>

#include "client/completion.h"
#include "client/flags.h"
#include "client/output.h"
#include "client/verbs.h"

namespace hbmtune::client {

void AddCompletion(CLI::App& app, Invocation& invocation) {
  CLI::App* verb = app.add_subcommand("completion", "print a completion script for a shell");
  verb->footer(
      "examples\n"
      "  source <(hbmtune completion bash)\n"
      "  hbmtune completion zsh > ~/.zfunc/_hbmtune");
  auto shell = std::make_shared<std::string>();
  AddChoice(*verb, "SHELL", {"bash", "zsh"}, "bash or zsh", *shell)
      ->required()
      ->group("arguments");
  verb->callback([shell, &app, &invocation] {
    invocation.run = [shell, &app]() -> absl::StatusOr<ExitCode> {
      std::string script = *shell == "bash" ? BashCompletion(app) : ZshCompletion(app);
      WriteOut(stdout, script);
      return kDone;
    };
  });
}

}  // namespace hbmtune::client
