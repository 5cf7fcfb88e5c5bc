#pragma once

// Marks a hot leaf loop to be compiled for AVX-512, AVX2 and the baseline, the best being chosen
// when the program is loaded. Elsewhere (other processors, other compilers, and under sanitizers,
// whose run time is not up yet when the loader chooses) there is one version.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define HBMTUNE_VECTOR_CLONES \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define HBMTUNE_VECTOR_CLONES
#endif

// The shared body of the fp32 and fp64 version of a leaf: inlined, so that it is compiled for the
// instruction set of the clone it stands in.
#define HBMTUNE_INLINE inline __attribute__((always_inline))
