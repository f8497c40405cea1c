/*
 * Confines a pool's processes. See confine.h.
 */
#include "confine.h"

#include <errno.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool failed(char *error, size_t size, const char *what, const char *folder)
{
	snprintf(error, size, "%s %s: %s", what, folder, strerror(errno));
	return false;
}

/* Only chroot(2) needed a capability. Root keeps its capabilities: the administrator chose to run as root. */
static bool drop_capabilities(void)
{
	if (geteuid() == 0) {
		return true;
	}
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {0};
	prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	return syscall(SYS_capset, &header, none) == 0;
}

bool confine_master(const struct pool_config *config, char *error, size_t size)
{
	if (config->chroot && (chroot(config->chroot) < 0 || chdir("/") < 0)) {
		return failed(error, size, "chroot to", config->chroot);
	}
	if (config->chdir && chdir(config->chdir) < 0) {
		return failed(error, size, "chdir to", config->chdir);
	}
	if (!drop_capabilities()) {
		return failed(error, size, "giving up capabilities in", config->chroot ? config->chroot : "/");
	}
	/*
	 * Scripts of the same user must not inspect this process: it has the manager's channel and every worker's memory.
	 */
	prctl(PR_SET_DUMPABLE, config->dumpable ? 1 : 0);
	return true;
}

void confine_worker(const struct pool_config *config)
{
	prctl(PR_SET_DUMPABLE, config->dumpable ? 1 : 0);
}
