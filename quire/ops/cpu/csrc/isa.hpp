// Which instruction sets this build has kernels for, and which of them this machine runs.
#pragma once

#include <string>
#include <vector>

#include "kernels.hpp"

namespace quire {

// What was compiled, the least demanding first; a compiler that does not know an instruction set leaves it out.
std::vector<std::string> compiled_variants();

// Best first; the last always runs.
std::vector<const Kernels*> runnable_kernels();

}  // namespace quire
