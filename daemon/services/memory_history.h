#pragma once

#include "daemon/devices/catalogue.h"
#include "daemon/store/memory_store.h"
#include "hbmtune/v1/devices.pb.h"

// Answers from what is stored of the devices' memory. INVALID_ARGUMENT names the field.
namespace hbmtune::daemon {

absl::Status ListMinutes(const Catalogue& catalogue, MemoryStore& store,
                         const v1::ListMemoryMinutesRequest& request,
                         v1::ListMemoryMinutesResponse& response);

absl::Status ListFindings(const Catalogue& catalogue, MemoryStore& store,
                          const v1::ListFindingsRequest& request,
                          v1::ListFindingsResponse& response);

}  // namespace hbmtune::daemon
