/* What Kiln binds of the kernel's interface: ffi/bindings.rs is made from this by `cargo check --features bindgen`.
 * From linux-libc-dev 6.1 and libdrm-dev 2.4.114 (Debian 12); amdxdna's is newer than both, so it is declared here.
 * libxrt has no C interface that serves: the bridge has one. */
#include <linux/dma-buf.h>
#include <linux/dma-heap.h>
#include <linux/sync_file.h>
#include <linux/udmabuf.h>
#include <libdrm/drm.h>
#include <libdrm/amdgpu_drm.h>
#include "amdxdna_accel.h"
#include "xrt/kiln_xrt.h"
