#include "kernels/comm/gloo_communicator.h"

#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <vector>

#include "kernels/comm/sum.h"
#include "kernels/core/error.h"

namespace hbmtune::comm {
namespace {

// A rank that gives up closes its connections, and would be taken for the lost one by those who
// notice it first. So the first witness leaves its sentence where ranks met, before it closes
// anything, and everybody repeats that sentence.
[[noreturn]] void LostRank(const std::string& folder, int rank, const std::string& why) {
  const bool late = why.find("imed out") != std::string::npos;
  std::string sentence = "rank " + std::to_string(rank) +
                         (late ? " does not answer any more" : " has ended before its time");
  const std::string path = folder + "/lost";
  const std::string own = path + "." + std::to_string(getpid());
  std::ofstream(own) << sentence << '\n';
  if (link(own.c_str(), path.c_str()) != 0) {  // whole or not at all, and the first one stays
    std::ifstream first(path);
    std::getline(first, sentence);
  }
  unlink(own.c_str());
  throw DeviceError(sentence);
}

}  // namespace

GlooCommunicator::GlooCommunicator(const GlooOptions& options) : options_(options) {
  std::signal(SIGPIPE, SIG_IGN);  // Gloo writes to sockets whose rank may be gone
  if (mkdir(options.rendezvous_path.c_str(), 0700) != 0 && errno != EEXIST) {
    throw DeviceError("ranks cannot meet in " + options.rendezvous_path + ": " +
                      std::strerror(errno));
  }
  try {
    gloo::transport::tcp::attr attributes;
    attributes.hostname = "127.0.0.1";
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    gloo::rendezvous::FileStore store(options.rendezvous_path);
    auto context = std::make_shared<gloo::rendezvous::Context>(options.rank, options.size);
    context->setTimeout(options.timeout);
    context->connectFullMesh(store, device);
    context_ = std::move(context);
  } catch (const gloo::Exception& error) {
    throw DeviceError("rank " + std::to_string(options.rank) +
                      " did not meet all other ranks: " + error.what());
  }
}

GlooCommunicator::~GlooCommunicator() = default;

// Parts are equal but for the last ones, which may be shorter or empty.
GlooCommunicator::Part GlooCommunicator::PartOf(const TensorArg& tensor, int r) const {
  const int64_t all = tensor.elements();
  const int64_t each = (all + size() - 1) / size();
  const int64_t begin = std::min(all, r * each);
  return {tensor.as<char>() + begin * SizeOf(tensor.dtype), std::min(each, all - begin)};
}

void GlooCommunicator::Exchange(const std::vector<Part>& sends,
                                const std::vector<Part>& receives, Dtype dtype) {
  const uint64_t slot = next_slot_++;
  std::vector<std::unique_ptr<gloo::transport::UnboundBuffer>> out(size()), in(size());
  int peer = 0;
  try {
    for (peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      out[peer] = context_->createUnboundBuffer(sends[peer].data,
                                                sends[peer].elements * SizeOf(dtype));
      in[peer] = context_->createUnboundBuffer(receives[peer].data,
                                               receives[peer].elements * SizeOf(dtype));
      if (sends[peer].elements > 0) out[peer]->send(peer, slot);
      if (receives[peer].elements > 0) in[peer]->recv(peer, slot);
    }
    for (peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      if (receives[peer].elements > 0) in[peer]->waitRecv(options_.timeout);
      if (sends[peer].elements > 0) out[peer]->waitSend(options_.timeout);
    }
  } catch (const gloo::Exception& error) {
    LostRank(options_.rendezvous_path, peer, error.what());
  }
}

void GlooCommunicator::ReduceOwnPart(const TensorArg& from, const Part& to) {
  const Part own = PartOf(from, rank());
  const int64_t bytes = own.elements * SizeOf(from.dtype);
  std::vector<std::vector<char>> arrived(size());
  std::vector<Part> sends(size()), receives(size());
  std::vector<const void*> terms(size());
  for (int r = 0; r < size(); ++r) {
    sends[r] = PartOf(from, r);
    if (r == rank()) {
      terms[r] = own.data;
      continue;
    }
    arrived[r].resize(bytes);
    receives[r] = {arrived[r].data(), own.elements};
    terms[r] = arrived[r].data();
  }
  Exchange(sends, receives, from.dtype);
  SumInOrder(terms, from.dtype, own.elements, to.data);
}

void GlooCommunicator::ReduceScatter(const TensorArg& from, const TensorArg& to) {
  ReduceOwnPart(from, {to.as<char>(), to.elements()});
}

void GlooCommunicator::AllReduce(const TensorArg& from, const TensorArg& to) {
  std::vector<char> sum(PartOf(from, rank()).elements * SizeOf(from.dtype));
  ReduceOwnPart(from, {sum.data(), 0});
  const Part own = PartOf(to, rank());
  std::memcpy(own.data, sum.data(), sum.size());
  std::vector<Part> sends(size(), own), receives(size());
  for (int r = 0; r < size(); ++r) receives[r] = PartOf(to, r);
  Exchange(sends, receives, to.dtype);
}

void GlooCommunicator::AllGather(const TensorArg& from, const TensorArg& to) {
  const Part own{from.as<char>(), from.elements()};
  std::vector<Part> sends(size(), own), receives(size());
  for (int r = 0; r < size(); ++r) receives[r] = PartOf(to, r);
  char* mine = receives[rank()].data;
  if (mine != own.data) std::memcpy(mine, own.data, own.elements * SizeOf(from.dtype));
  Exchange(sends, receives, to.dtype);
}

void GlooCommunicator::Broadcast(const TensorArg& from, const TensorArg& to, uint32_t root) {
  const bool sender = rank() == static_cast<int>(root);
  std::vector<Part> sends(size()), receives(size());
  for (int r = 0; r < size(); ++r) {
    if (sender) sends[r] = {from.as<char>(), from.elements()};
    if (!sender && r == static_cast<int>(root)) receives[r] = {to.as<char>(), to.elements()};
  }
  if (sender && from.data != to.data) std::memcpy(to.data, from.data, from.bytes());
  Exchange(sends, receives, from.dtype);
}

}  // namespace hbmtune::comm
