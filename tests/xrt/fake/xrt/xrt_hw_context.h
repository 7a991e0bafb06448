// Part of a FAKE of libxrt, see fake.h.
#include "xrt/fake.h"
