// Device memory, streams and events under the recorder's control, in front of cuda_stand_in.c:
// what PyTorch's caching allocator sees of a driver, and nothing else. Memory is numbers: segments
// come first fit at the lowest address in units of 2 MiB, as kernels/memory/address_space.h hands
// them out, and nothing may touch them.
//
// The recorder calls stand_in_reset and stand_in_progress through ctypes.
#define _GNU_SOURCE
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kMaxRanges = 1 << 16, kMaxStreams = 256 };
static const uint64_t kUnit = 2ULL << 20;
static const uint64_t kBase = 1ULL << 40;

typedef struct { uint64_t address, bytes; int holds_memory; } Range;
static Range ranges[kMaxRanges];  // by address
static int range_count;
static uint64_t capacity_bytes, used_bytes;  // HBMTUNE_STAND_IN_BYTES, as in cuda_stand_in.c
static int events_at_once = 1;
static long recorded[kMaxStreams], completed[kMaxStreams];

static uint64_t round_up(uint64_t bytes) { return (bytes + kUnit - 1) / kUnit * kUnit; }

static uint64_t reserve(uint64_t bytes, int holds_memory) {
  bytes = round_up(bytes);
  uint64_t address = kBase;
  int i = 0;
  while (i < range_count && ranges[i].address - address < bytes) {
    address = ranges[i].address + ranges[i].bytes;
    ++i;
  }
  if (range_count == kMaxRanges) abort();
  memmove(ranges + i + 1, ranges + i, (range_count - i) * sizeof *ranges);
  ranges[i] = (Range){address, bytes, holds_memory};
  ++range_count;
  if (holds_memory) used_bytes += bytes;
  return address;
}

static void release(uint64_t address) {
  for (int i = 0; i < range_count; ++i) {
    if (ranges[i].address != address) continue;
    if (ranges[i].holds_memory) used_bytes -= ranges[i].bytes;
    --range_count;
    memmove(ranges + i, ranges + i + 1, (range_count - i) * sizeof *ranges);
    return;
  }
  fprintf(stderr, "stand-in: free of an unknown address %lx\n", (unsigned long)address);
  abort();
}

// --- for the recorder -------------------------------------------------------------------------

__attribute__((constructor)) static void start(void) {
  const char* text = getenv("HBMTUNE_STAND_IN_BYTES");
  capacity_bytes = text ? strtoull(text, NULL, 10) : 80ULL << 30;
}

// Forgets all events. Returns the number of segments that are still held: 0 for a fresh start.
int stand_in_reset(int at_once) {
  events_at_once = at_once;
  memset(recorded, 0, sizeof recorded);
  memset(completed, 0, sizeof completed);
  return range_count;
}

static long slot_of(const void* stream) { return (uintptr_t)stream % kMaxStreams; }

// Everything recorded on the stream so far has completed.
void stand_in_progress(const void* stream) {
  completed[slot_of(stream)] = recorded[slot_of(stream)];
}

// --- memory -----------------------------------------------------------------------------------

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  if (used_bytes + round_up(bytes) > capacity_bytes) return cudaErrorMemoryAllocation;
  return *pointer = (void*)reserve(bytes, 1), cudaSuccess;
}
cudaError_t cudaFree(void* pointer) {
  if (pointer) release((uint64_t)pointer);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  *total_bytes = capacity_bytes;
  *free_bytes = capacity_bytes - used_bytes;
  return cudaSuccess;
}
// Device memory reads as zero and cannot be written.
static int is_device(const void* pointer) {
  return (uint64_t)pointer >= kBase && (uint64_t)pointer < 1ULL << 46;
}
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes* a, const void* pointer) {
  memset(a, 0, sizeof *a);
  a->type = is_device(pointer) ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered;
  a->devicePointer = (void*)pointer;
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, enum cudaMemcpyKind kind) {
  (void)kind;
  if (is_device(to)) return cudaSuccess;
  if (is_device(from)) memset(to, 0, bytes);
  else memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
  (void)stream;
  return cudaMemcpy(to, from, bytes, kind);
}

// --- virtual memory: expandable segments --------------------------------------------------------

static CUresult mem_address_reserve(CUdeviceptr* pointer, size_t bytes, size_t align,
                                    CUdeviceptr hint, unsigned long long flags) {
  (void)align, (void)hint, (void)flags;
  return *pointer = reserve(bytes, 0), CUDA_SUCCESS;
}
static CUresult mem_address_free(CUdeviceptr pointer, size_t bytes) {
  (void)bytes;
  return release(pointer), CUDA_SUCCESS;
}
static CUresult mem_create(CUmemGenericAllocationHandle* handle, size_t bytes,
                           const CUmemAllocationProp* prop, unsigned long long flags) {
  (void)flags;
  if (prop->requestedHandleTypes == CU_MEM_HANDLE_TYPE_FABRIC) return CUDA_ERROR_NOT_SUPPORTED;
  if (used_bytes + bytes > capacity_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
  used_bytes += bytes;
  return *handle = bytes, CUDA_SUCCESS;  // a handle is its size
}
static CUresult mem_release(CUmemGenericAllocationHandle handle) {
  return used_bytes -= handle, CUDA_SUCCESS;
}
static CUresult nothing(void) { return CUDA_SUCCESS; }
static CUresult get_error_string(CUresult error, const char** text) {
  (void)error;
  return *text = "stand-in error", CUDA_SUCCESS;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult* result) {
  (void)version, (void)flags;
  static const struct { const char* name; void* function; } table[] = {
      {"cuMemAddressReserve", mem_address_reserve}, {"cuMemAddressFree", mem_address_free},
      {"cuMemCreate", mem_create},                  {"cuMemRelease", mem_release},
      {"cuMemMap", nothing},                        {"cuMemUnmap", nothing},
      {"cuMemSetAccess", nothing},                  {"cuGetErrorString", get_error_string}};
  *function = nothing;
  for (size_t i = 0; i < sizeof table / sizeof *table; ++i) {
    if (strcmp(symbol, table[i].name) == 0) *function = table[i].function;
  }
  if (result) *result = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

// --- events: a ticket of a stream ---------------------------------------------------------------

typedef struct { long slot, ticket; } Event;

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  (void)flags;
  return *event = calloc(1, sizeof(Event)), cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) { return free(event), cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  Event* e = (Event*)event;
  e->slot = slot_of(stream);
  e->ticket = ++recorded[e->slot];
  return cudaSuccess;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  (void)flags;
  return cudaEventRecord(event, stream);
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const Event* e = (Event*)event;
  return events_at_once || e->ticket <= completed[e->slot] ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const Event* e = (Event*)event;
  if (completed[e->slot] < e->ticket) completed[e->slot] = e->ticket;
  return cudaSuccess;
}

// Handles that slot_of tells apart.
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  (void)flags, (void)priority;
  static uintptr_t next = 0x1000;
  return *stream = (cudaStream_t)++next, cudaSuccess;
}

// --- NVML: PyTorch asks it for fabric handles and other processes; there are none ---------------

enum { kNvmlNotSupported = 3 };
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus, void** device) {
  (void)bus;
  return *device = NULL, 0;
}
int nvmlDeviceGetComputeRunningProcesses(void* device, unsigned* count, void* processes) {
  (void)device, (void)processes;
  return *count = 0, 0;
}
int nvmlDeviceGetGpuFabricInfoV(void) { return kNvmlNotSupported; }
int nvmlDeviceGetNvLinkRemoteDeviceType(void) { return kNvmlNotSupported; }
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void) { return kNvmlNotSupported; }
int nvmlSystemGetCudaDriverVersion_v2(int* version) { return *version = 13020, 0; }
