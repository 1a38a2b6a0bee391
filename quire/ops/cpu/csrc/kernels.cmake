# How every object of the core is compiled, and variants/kernels.cpp once per instruction set that the compiler knows:
# the library quire_kernels. Included by the core's own build and by the tests that need no Python.
option(QUIRE_PORTABLE "Leave out tuning for this machine, for wheels that run elsewhere" OFF)
option(QUIRE_SANITIZE "Build with the address and undefined behaviour sanitizers" OFF)

include(CheckCXXCompilerFlag)
find_package(Threads REQUIRED)
set(csrc "${CMAKE_CURRENT_LIST_DIR}")

set(flags -fno-math-errno -Wall -Wextra)
if(NOT QUIRE_PORTABLE)
    check_cxx_compiler_flag(-mtune=native QUIRE_CXX_HAS_MTUNE_NATIVE)
    if(QUIRE_CXX_HAS_MTUNE_NATIVE)
        list(APPEND flags -mtune=native)
    endif()
endif()
if(QUIRE_SANITIZE)
    set(sanitizers -fsanitize=address,undefined -fno-sanitize-recover=all)
    list(APPEND flags ${sanitizers} -g1 -O1 -fno-omit-frame-pointer)
endif()

# What every object of the core is compiled with.
add_library(quire_flags INTERFACE)
target_compile_features(quire_flags INTERFACE cxx_std_17)
target_compile_options(quire_flags INTERFACE ${flags})
target_include_directories(quire_flags INTERFACE "${csrc}")
target_link_libraries(quire_flags INTERFACE Threads::Threads)
target_link_options(quire_flags INTERFACE ${sanitizers})

function(add_quire_objects name)
    add_library(${name} OBJECT ${ARGN})
    target_link_libraries(${name} PRIVATE quire_flags)
    set_target_properties(${name} PROPERTIES
        POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON CXX_EXTENSIONS OFF)
endfunction()

# --- one object per instruction set -----------------------------------------------------------------------------------

set(variants "")  # from the least demanding to the best

# add_variant(NAME FLAGS...): leaves the variant out when the compiler does not know one of its flags.
function(add_variant name)
    list(JOIN ARGN " " joined)
    check_cxx_compiler_flag("${joined}" QUIRE_CXX_HAS_${name})
    if(NOT QUIRE_CXX_HAS_${name})
        message(STATUS "quire: no ${name} kernels, since ${CMAKE_CXX_COMPILER} does not know ${joined}")
        return()
    endif()
    add_quire_objects(quire_kernels_${name} "${csrc}/variants/kernels.cpp")
    target_compile_options(quire_kernels_${name} PRIVATE ${ARGN} ${for_all_variants})
    target_compile_definitions(quire_kernels_${name} PRIVATE QUIRE_ISA=${name})
    set(variants ${variants} ${name} PARENT_SCOPE)
endfunction()

if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
    set(is_x86 TRUE)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
    set(is_aarch64 TRUE)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND is_x86)
    # It warns of registers that its header leaves undefined on purpose. And when it tunes for AMD's Zen it parts some
    # sums of products into two roundings, and others not: the same sum in two kernels would be two numbers.
    set(for_all_variants -Wno-uninitialized -Wno-maybe-uninitialized --param=avoid-fma-max-bits=0)
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND is_aarch64)  # moves loads so far ahead of their use that it spills sums
    set(for_all_variants -fno-schedule-insns)
endif()

add_variant(portable)
if(is_x86)
    set(avx2 -mavx2 -mfma -mf16c)
    set(avx512 ${avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni)
    add_variant(avx2 ${avx2})
    add_variant(avxvnni ${avx2} -mavxvnni)
    add_variant(avx512 ${avx512})
    add_variant(amx ${avx512} -mavx512bf16 -mamx-tile -mamx-int8 -mamx-bf16)
elseif(is_aarch64)
    # No variant for SVE: where its vectors are longer than 128 bits (Neoverse V1) there are half as many units for
    # them, and elsewhere they are as long as NEON's.
    add_variant(dotprod -march=armv8.2-a+dotprod+fp16)
    add_variant(i8mm -march=armv8.2-a+dotprod+fp16+i8mm+bf16)
endif()

# Of an inline function that several objects hold, the linker keeps the first it meets. That must be one that every CPU
# can run, so the variants stand in an archive, which is searched after all other objects, the portable one first.
add_library(quire_kernels STATIC)
foreach(name IN LISTS variants)
    target_sources(quire_kernels PRIVATE $<TARGET_OBJECTS:quire_kernels_${name}>)
endforeach()
set_target_properties(quire_kernels PROPERTIES LINKER_LANGUAGE CXX)

# isa.cpp gets the variants, the least demanding first, as QUIRE_VARIANT(portable) QUIRE_VARIANT(avx2) ...
list(TRANSFORM variants REPLACE "(.+)" "QUIRE_VARIANT(\\1)" OUTPUT_VARIABLE table)
list(JOIN table " " table)
set_source_files_properties("${csrc}/isa.cpp" PROPERTIES COMPILE_DEFINITIONS "QUIRE_VARIANTS=${table}")
