// Which instruction sets this build has kernels for, and which of them this machine runs.
#pragma once

#include <string>
#include <vector>

#include "kernels.hpp"

namespace quire {

// Best first; the last always runs.
std::vector<const Kernels*> runnable_kernels();

}  // namespace quire
