#include "isa.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace quire {

// QUIRE_VARIANTS lists what was compiled as QUIRE_VARIANT(name), the least demanding first.
#define QUIRE_VARIANT(name) extern const Kernels& kernels_##name();
QUIRE_VARIANTS
#undef QUIRE_VARIANT

namespace {

#if defined(__x86_64__)

struct Leaf {
    unsigned a = 0, b = 0, c = 0, d = 0;
};

Leaf leaf(unsigned number, unsigned sub) {
    Leaf found;
    __get_cpuid_count(number, sub, &found.a, &found.b, &found.c, &found.d);
    return found;
}

// Registers that the system saves when it switches threads.
uint64_t saved_state() {
    if ((leaf(1, 0).c >> 27 & 1) == 0) return 0;
    uint32_t low, high;
    asm("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return static_cast<uint64_t>(high) << 32 | low;
}

// Linux hands out the large tile registers to those who ask.
bool tiles_granted() {
#if defined(__linux__)
    constexpr long kRequestPermission = 0x1023, kTileData = 18;
    return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
    return false;
#endif
}

bool runs(const std::string& name) {
    if (name == "portable") return true;
    const Leaf basic = leaf(1, 0), extended = leaf(7, 0), more = leaf(7, 1);
    const uint64_t saved = saved_state();
    const bool avx2 = (saved & 0x6) == 0x6 && (extended.b >> 5 & 1) && (basic.c >> 12 & 1) && (basic.c >> 29 & 1);
    if (name == "avx2") return avx2;
    if (name == "avxvnni") return avx2 && (more.a >> 4 & 1);
    const unsigned needed = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31;  // F, DQ, BW, VL
    const bool avx512 =
        avx2 && (saved & 0xe6) == 0xe6 && (extended.b & needed) == needed && (extended.c >> 11 & 1);  // and VNNI
    if (name == "avx512") return avx512;
    const bool amx = (saved >> 17 & 3) == 3 && (extended.d >> 22 & 1) && (extended.d >> 24 & 1);
    if (name == "amx") return avx512 && (more.a >> 5 & 1) && amx && tiles_granted();
    return false;
}

#elif defined(__aarch64__)

#if defined(__APPLE__)
bool has(const char* feature) {
    int found = 0;
    size_t size = sizeof(found);
    return sysctlbyname(feature, &found, &size, nullptr, 0) == 0 && found != 0;
}
#endif

bool runs(const std::string& name) {
    if (name == "portable") return true;
#if defined(__linux__)
    const unsigned long first = getauxval(AT_HWCAP), second = getauxval(AT_HWCAP2);
    const bool dotprod = (first >> 20 & 1) && (first >> 10 & 1);  // and float16 arithmetic
    if (name == "dotprod") return dotprod;
    if (name == "i8mm") return dotprod && (second >> 13 & 1) && (second >> 14 & 1);  // and bfloat16
    return false;
#elif defined(__APPLE__)
    if (name == "dotprod") return true;  // every one of them has it
    return name == "i8mm" && has("hw.optional.arm.FEAT_I8MM") && has("hw.optional.arm.FEAT_BF16");
#else
    return false;
#endif
}

#else

bool runs(const std::string& name) { return name == "portable"; }

#endif

}  // namespace

std::vector<std::string> compiled_variants() {
#define QUIRE_VARIANT(name) #name,
    return {QUIRE_VARIANTS};
#undef QUIRE_VARIANT
}

std::vector<const Kernels*> runnable_kernels() {
    std::vector<const Kernels*> found;
#define QUIRE_VARIANT(name) \
    if (runs(#name)) found.insert(found.begin(), &kernels_##name());
    QUIRE_VARIANTS
#undef QUIRE_VARIANT
    return found;
}

}  // namespace quire
