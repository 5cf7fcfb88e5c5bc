// A stand-in for the CUDA runtime and cuBLAS: PyTorch's CUDA build runs on it without a GPU.
//
// Loaded by LD_PRELOAD. Device memory is address space that nothing touches, kernels and matrix
// products return at once, every event has happened. So PyTorch's own host code runs
// (dispatch, autograd, kernel selection, workspaces, its caching allocator) with
// no arithmetic: the allocations are real, the numbers are not. Device memory reads as zero.
//
// The device has the shape of an A100-SXM4-80GB, because kernels size some workspaces
// by the number of multiprocessors. HBMTUNE_STAND_IN_BYTES overrides its memory.
#define _GNU_SOURCE
#include <cublasLt.h>
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { kMultiprocessors = 108, kWarp = 32, kThreadsPerMultiprocessor = 2048 };
enum { kVersion = CUDART_VERSION };
enum { kSmallCopyBytes = 4096, kMaxSegments = 1 << 16, kMaxPinned = 1 << 12 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct { char* begin; size_t bytes; } segments[kMaxSegments];
static int segment_count;
static struct { char* begin; size_t bytes; } pinned[kMaxPinned];  // the last ones allocated
static unsigned pinned_count;
static size_t used_bytes;

static size_t capacity_bytes(void) {
  const char* text = getenv("HBMTUNE_STAND_IN_BYTES");
  return text ? strtoull(text, NULL, 10) : 80ULL << 30;
}

// --- device ---------------------------------------------------------------------------------

cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int* version) { return *version = kVersion, cudaSuccess; }
cudaError_t cudaDriverGetVersion(int* version) { return *version = kVersion, cudaSuccess; }

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp* p, int device) {
  (void)device;
  memset(p, 0, sizeof *p);
  strcpy(p->name, "stand-in A100-SXM4-80GB");
  p->totalGlobalMem = capacity_bytes();
  p->major = 8;
  p->minor = 0;
  p->multiProcessorCount = kMultiprocessors;
  p->warpSize = kWarp;
  p->maxThreadsPerMultiProcessor = kThreadsPerMultiprocessor;
  p->maxThreadsPerBlock = 1024;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
  p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 2147483647;
  p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->sharedMemPerBlock = 48 << 10;
  p->sharedMemPerBlockOptin = 163 << 10;
  p->sharedMemPerMultiprocessor = 164 << 10;
  p->regsPerBlock = p->regsPerMultiprocessor = 65536;
  p->maxBlocksPerMultiProcessor = 32;
  p->l2CacheSize = 40 << 20;
  p->memoryBusWidth = 5120;
  p->totalConstMem = 64 << 10;
  p->textureAlignment = 512;
  p->unifiedAddressing = p->concurrentKernels = p->cooperativeLaunch = 1;
  p->canMapHostMemory = p->managedMemory = 1;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, enum cudaDeviceAttr attribute, int device) {
  struct cudaDeviceProp p;
  cudaGetDeviceProperties(&p, device);
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = p.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = p.minor; break;
    case cudaDevAttrMultiProcessorCount: *value = p.multiProcessorCount; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = kThreadsPerMultiprocessor; break;
    case cudaDevAttrMaxThreadsPerBlock: *value = p.maxThreadsPerBlock; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = p.sharedMemPerBlock; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = p.sharedMemPerBlockOptin; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = 164 << 10; break;
    case cudaDevAttrMaxRegistersPerBlock: *value = p.regsPerBlock; break;
    case cudaDevAttrWarpSize: *value = p.warpSize; break;
    case cudaDevAttrMaxGridDimX: *value = p.maxGridSize[0]; break;
    case cudaDevAttrMaxGridDimY: *value = p.maxGridSize[1]; break;
    case cudaDevAttrMaxBlockDimX: *value = p.maxThreadsDim[0]; break;
    case cudaDevAttrL2CacheSize: *value = p.l2CacheSize; break;
    default: *value = 0;
  }
  return cudaSuccess;
}

// The driver's own interface, as far as PyTorch opens it by name (hence the library's soname).
CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  (void)device;
  return *flags = 0, *active = 1, CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext* context) { return *context = (void*)1, CUDA_SUCCESS; }
CUresult cuCtxGetDevice(CUdevice* device) { return *device = 0, CUDA_SUCCESS; }

const char* cudaGetErrorString(cudaError_t error) { return error ? "stand-in error" : "no error"; }
const char* cudaGetErrorName(cudaError_t error) { return error ? "error" : "cudaSuccess"; }
cudaError_t cudaGetLastError(void) { return cudaSuccess; }
cudaError_t cudaPeekAtLastError(void) { return cudaSuccess; }

// --- memory ---------------------------------------------------------------------------------

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  pthread_mutex_lock(&mutex);
  const int fits = used_bytes + bytes <= capacity_bytes() && segment_count < kMaxSegments;
  // PyTorch expects segments aligned as the driver aligns them: 2 MiB.
  const size_t align = 2 << 20;
  char* base = fits ? mmap(NULL, bytes + align, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
                    : MAP_FAILED;
  if (base == MAP_FAILED) {
    pthread_mutex_unlock(&mutex);
    return cudaErrorMemoryAllocation;
  }
  char* begin = (char*)(((uintptr_t)base + align - 1) / align * align);
  segments[segment_count].begin = begin;
  segments[segment_count++].bytes = bytes;
  used_bytes += bytes;
  *pointer = begin;
  pthread_mutex_unlock(&mutex);
  return cudaSuccess;
}

cudaError_t cudaFree(void* pointer) {
  pthread_mutex_lock(&mutex);
  for (int i = 0; pointer && i < segment_count; ++i) {
    if (segments[i].begin != pointer) continue;
    munmap(pointer, segments[i].bytes);
    used_bytes -= segments[i].bytes;
    segments[i] = segments[--segment_count];
    break;
  }
  pthread_mutex_unlock(&mutex);
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  *total_bytes = capacity_bytes();
  *free_bytes = *total_bytes - used_bytes;
  return cudaSuccess;
}

static int is_device(const void* pointer) {
  pthread_mutex_lock(&mutex);
  int found = 0;
  for (int i = 0; i < segment_count && !found; ++i) {
    const char* p = pointer;
    found = p >= segments[i].begin && p < segments[i].begin + segments[i].bytes;
  }
  pthread_mutex_unlock(&mutex);
  return found;
}

static int is_pinned(const void* pointer) {
  const char* p = pointer;
  for (unsigned i = 0; i < kMaxPinned; ++i) {
    if (p >= pinned[i].begin && p < pinned[i].begin + pinned[i].bytes) return 1;
  }
  return 0;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes* a, const void* pointer) {
  memset(a, 0, sizeof *a);
  a->type = is_device(pointer)   ? cudaMemoryTypeDevice
            : is_pinned(pointer) ? cudaMemoryTypeHost
                                 : cudaMemoryTypeUnregistered;
  a->devicePointer = (void*)pointer;
  return cudaSuccess;
}

// What a one-byte read of device memory gives. The recorder (recording.device_flag) sets it to fit
// what is asked: true for "do all positions count up", false for "is a gradient not finite".
int stand_in_flag = 1;

// What the host reads from the device must be defined; large device memory stays untouched.
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, enum cudaMemcpyKind kind) {
  (void)kind;
  if (bytes == 1 && is_device(from) && !is_device(to)) {
    *(char*)to = stand_in_flag;
    return cudaSuccess;
  }
  if (bytes <= kSmallCopyBytes || !is_device(to)) memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
  (void)stream;
  return cudaMemcpy(to, from, bytes, kind);
}

cudaError_t cudaMallocHost(void** pointer, size_t bytes) {
  if (!(*pointer = calloc(1, bytes ? bytes : 1))) return cudaErrorMemoryAllocation;
  const unsigned slot = __atomic_fetch_add(&pinned_count, 1, __ATOMIC_RELAXED) % kMaxPinned;
  pinned[slot].begin = *pointer;
  pinned[slot].bytes = bytes;
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned flags) {
  (void)flags;
  return cudaMallocHost(pointer, bytes);
}
cudaError_t cudaFreeHost(void* pointer) { return free(pointer), cudaSuccess; }

// --- streams and events ---------------------------------------------------------------------

static void* new_handle(void) {
  static uintptr_t next = 0x1000;
  return (void*)__atomic_add_fetch(&next, 16, __ATOMIC_RELAXED);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  (void)flags, (void)priority;
  return *stream = new_handle(), cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithPriority(stream, 0, 0);
}
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  (void)stream;
  return *priority = 0, cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return *least = 0, *greatest = -5, cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus* status) {
  (void)stream;
  return *status = cudaStreamCaptureStatusNone, cudaSuccess;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t** dependencies,
#if CUDART_VERSION >= 13000
                                     const cudaGraphEdgeData** edges,
#endif
                                     size_t* count) {
  (void)stream, (void)graph, (void)dependencies;
  if (status) *status = cudaStreamCaptureStatusNone;
  if (id) *id = 0;
  if (count) *count = 0;
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  (void)flags;
  return *event = new_handle(), cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  (void)start, (void)end;
  return *ms = 0, cudaSuccess;
}

// --- kernels --------------------------------------------------------------------------------

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes* a, const void* function) {
  (void)function;
  memset(a, 0, sizeof *a);
  a->maxThreadsPerBlock = 1024;
  a->numRegs = 32;
  a->ptxVersion = a->binaryVersion = 80;
  a->maxDynamicSharedSizeBytes = 163 << 10;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int* blocks, const void* function, int threads, size_t shared, unsigned flags) {
  (void)function, (void)shared, (void)flags;
  return *blocks = threads ? kThreadsPerMultiprocessor / threads : 1, cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function,
                                                          int threads, size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, shared,
                                                                0);
}
cudaError_t __cudaGetKernel(void** kernel, const void* function) {
  return *kernel = (void*)function, cudaSuccess;
}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void* stream) {
  (void)grid, (void)block, (void)shared, (void)stream;
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  const dim3 one = {1, 1, 1};
  *grid = *block = one;
  *shared = 0;
  *(void**)stream = NULL;
  return cudaSuccess;
}
void** __cudaRegisterFatBinary(void* binary) { return (void)binary, new_handle(); }
cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult* result) {
  (void)symbol, (void)version, (void)flags;
  *function = NULL;
  if (result) *result = cudaDriverEntryPointSymbolNotFound;
  return cudaErrorNotSupported;
}

// --- cuBLAS ---------------------------------------------------------------------------------

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  return *handle = new_handle(), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t* mode) {
  (void)handle;
  return *mode = CUBLAS_POINTER_MODE_HOST, CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t* mode) {
  (void)handle;
  return *mode = CUBLAS_DEFAULT_MATH, CUBLAS_STATUS_SUCCESS;
}
size_t cublasLtGetVersion(void) { return 130401; }
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* d, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  (void)compute, (void)scale;
  return *d = new_handle(), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t stride) {
  (void)type, (void)rows, (void)columns, (void)stride;
  return *layout = new_handle(), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return *preference = new_handle(), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t out,
    cublasLtMatmulPreference_t preference, int wanted, cublasLtMatmulHeuristicResult_t* results,
    int* found) {
  (void)handle, (void)d, (void)a, (void)b, (void)c, (void)out, (void)preference, (void)wanted;
  memset(results, 0, sizeof *results);
  return *found = 1, CUBLAS_STATUS_SUCCESS;
}

// --- everything else succeeds and does nothing ------------------------------------------------

// Symbols, not functions: the headers declare these with types that a common body cannot have.
int stand_in_nothing(void) { return 0; }
#define NOTHING(name) \
  __asm__(".globl " #name "\n.type " #name ",@function\n.set " #name ",stand_in_nothing");
NOTHING(cudaSetDevice)
NOTHING(cudaDeviceSynchronize)
NOTHING(cudaDeviceCanAccessPeer)
NOTHING(cudaDeviceEnablePeerAccess)
NOTHING(cudaEventDestroy)
NOTHING(cudaEventQuery)
NOTHING(cudaEventRecord)
NOTHING(cudaEventRecordWithFlags)
NOTHING(cudaEventSynchronize)
NOTHING(cudaStreamDestroy)
NOTHING(cudaStreamQuery)
NOTHING(cudaStreamSynchronize)
NOTHING(cudaStreamWaitEvent)
NOTHING(cudaThreadExchangeStreamCaptureMode)
NOTHING(cudaFuncSetAttribute)
NOTHING(cudaKernelSetAttributeForDevice)
NOTHING(cudaLaunchKernel)
NOTHING(cudaLaunchKernelExC)
NOTHING(__cudaLaunchKernel)
NOTHING(__cudaRegisterFatBinaryEnd)
NOTHING(__cudaRegisterFunction)
NOTHING(__cudaRegisterVar)
NOTHING(__cudaUnregisterFatBinary)
NOTHING(cudaMemset)
NOTHING(cudaMemsetAsync)
NOTHING(cudaMemcpyToSymbol)
NOTHING(cudaHostRegister)
NOTHING(cudaHostUnregister)
NOTHING(cublasDestroy_v2)
NOTHING(cublasSetStream_v2)
NOTHING(cublasSetWorkspace_v2)
NOTHING(cublasSetMathMode)
NOTHING(cublasSetPointerMode_v2)
NOTHING(cublasSetSmCountTarget)
NOTHING(cublasSgemm_v2)
NOTHING(cublasGemmEx)
NOTHING(cublasSgemmEx)
NOTHING(cublasSgemmStridedBatched)
NOTHING(cublasGemmStridedBatchedEx)
NOTHING(cublasSgemv_v2)
NOTHING(cublasSdot_v2)
NOTHING(cublasDotEx)
NOTHING(cublasDgemm_v2)
NOTHING(cublasDgemmStridedBatched)
NOTHING(cublasLtMatmul)
NOTHING(cublasLtMatmulDescDestroy)
NOTHING(cublasLtMatmulDescSetAttribute)
NOTHING(cublasLtMatrixLayoutDestroy)
NOTHING(cublasLtMatrixLayoutSetAttribute)
NOTHING(cublasLtMatmulPreferenceDestroy)
NOTHING(cublasLtMatmulPreferenceSetAttribute)
