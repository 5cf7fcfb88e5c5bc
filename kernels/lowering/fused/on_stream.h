#pragma once

#include "kernels/program/tape.h"

namespace hbmtune::lowering {

// Instructions go to another stream while it lives.
class OnStream {
 public:
  OnStream(Tape& tape, StreamId stream) : tape_(tape), before_(tape.stream()) {
    tape_.set_stream(stream);
  }
  ~OnStream() { tape_.set_stream(before_); }
  OnStream(const OnStream&) = delete;
  OnStream& operator=(const OnStream&) = delete;

 private:
  Tape& tape_;
  StreamId before_;
};

}  // namespace hbmtune::lowering
