#pragma once

namespace hbmtune::probe {

// Serves one trial: reads a length-delimited ProbeRequest from `input`, writes length-delimited
// ProbeEvents to `output`, logs to stderr. End of file on `input`, SIGINT and SIGTERM cancel the
// trial at its next operation. Returns the exit status: 0 once `finished` was written, 1 if there
// was no request or nobody to write to.
int Serve(int input, int output);

}  // namespace hbmtune::probe
