/*
 * Confines a pool's processes. See confine.h.
 */
#include "confine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "say.h"

static bool failed(char *error, size_t size, const char *what, const char *folder)
{
	snprintf(error, size, "%s %s: %s", what, folder, strerror(errno));
	return false;
}

#define CHROOT (1u << CAP_SYS_CHROOT)
#define OTHER_USERS (1u << CAP_SETUID | 1u << CAP_SETGID)

/*
 * Gives up all capabilities but `wanted`. Of those, only `effective` can be used at once. Root keeps its
 * capabilities: the administrator chose to run as root.
 */
static bool keep_only(uint32_t wanted, uint32_t effective)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {0};
	if (geteuid() == 0) {
		return true;
	}
	if (syscall(SYS_capget, &header, sets) < 0) {
		return false;
	}
	uint32_t kept = sets[0].permitted & wanted;
	memset(sets, 0, sizeof sets);
	/* Nothing is inheritable, so programs that this one executes get nothing (capabilities(7), ambient). */
	sets[0].permitted = kept;
	sets[0].effective = kept & effective;
	return syscall(SYS_capset, &header, sets) == 0;
}

void confine_start(void)
{
	prctl(PR_SET_DUMPABLE, 0);
	/*
	 * Only chroot(2) needs a capability later, and, in a template, the change of user. The manager gave one more, so
	 * that nobody could inspect this process until now.
	 */
	keep_only(CHROOT | OTHER_USERS, 0);
}

bool confine_use_all(void)
{
	return keep_only(CHROOT | OTHER_USERS, CHROOT | OTHER_USERS);
}

bool confine_keep_user(void)
{
	/* A change of user sets it to what the machine allows (fs.suid_dumpable). */
	prctl(PR_SET_DUMPABLE, 0);
	return keep_only(CHROOT, 0);
}

void confine_limit(const struct pool_config *config)
{
	for (size_t at = 0; at < config->limit_count; at++) {
		const struct limit *limit = &config->limits[at];
		struct rlimit now, wanted;
		getrlimit(limit->resource, &now);
		wanted.rlim_max = limit->hard < now.rlim_max ? limit->hard : now.rlim_max;
		wanted.rlim_cur = limit->soft < wanted.rlim_max ? limit->soft : wanted.rlim_max;
		setrlimit(limit->resource, &wanted);
	}
}

/*
 * Changes to the AppArmor profile PROFILE//HAT of this process's profile, by the kernel's files, as libapparmor does
 * (aa_change_profile(2)). Workers inherit it.
 */
static bool put_on_hat(const char *hat, char *error, size_t size)
{
	/* Where several security modules are active, AppArmor has a folder of its own. */
	const char *path = "/proc/self/attr/apparmor/current";
	int file = open(path, O_RDWR | O_CLOEXEC);
	if (file < 0) {
		path = "/proc/self/attr/current";
		file = open(path, O_RDWR | O_CLOEXEC);
	}
	char profile[1024];
	ssize_t length = file < 0 ? -1 : read(file, profile, sizeof profile - 1);
	if (length <= 0) {
		snprintf(error, size, "apparmor_hat = %s: cannot read the AppArmor profile of this process (%s: %s); is AppArmor active?",
			 hat, path, length == 0 ? "it is empty" : strerror(errno));
		if (file >= 0) {
			close(file);
		}
		return false;
	}
	profile[length] = '\0';
	/* "NAME (enforce)", "unconfined". */
	char *mode = strstr(profile, " (");
	profile[mode ? (size_t)(mode - profile) : strcspn(profile, "\n")] = '\0';
	char order[2048];
	int wanted = snprintf(order, sizeof order, "changeprofile %s//%s", profile, hat);
	bool fits = wanted > 0 && (size_t)wanted < sizeof order;
	errno = ENAMETOOLONG;
	bool done = fits && write(file, order, (size_t)wanted) == wanted;
	if (!done) {
		snprintf(error, size, "apparmor_hat = %s: cannot change to the AppArmor profile %s//%s: %s; the profile must exist, and \"change_profile -> %s//*\" must be allowed",
			 hat, profile, hat, strerror(errno), profile);
	}
	close(file);
	return done;
}

/* The pool has an AppArmor profile that its processes cannot get. */
static bool lacks_hat;

bool confine_master(const struct pool_config *config, char *error, size_t size)
{
	if (config->apparmor_hat && !put_on_hat(config->apparmor_hat, error, size)) {
		if (!config->is_fpm) {
			return false;
		}
		/* In PHP-FPM's place the pool's children end, and the program goes on. */
		lacks_hat = true;
		say("weir-php: pool %s: %s", config->pool, error);
	}
	if (config->chroot && (!keep_only(CHROOT, CHROOT) || chroot(config->chroot) < 0 || chdir("/") < 0)) {
		return failed(error, size, "chroot to", config->chroot);
	}
	if (config->chdir && chdir(config->chdir) < 0) {
		return failed(error, size, "chdir to", config->chdir);
	}
	if (!keep_only(0, 0)) {
		return failed(error, size, "giving up capabilities in", config->chroot ? config->chroot : "/");
	}
	/* A change of identity sets it to what the machine allows (fs.suid_dumpable). */
	prctl(PR_SET_DUMPABLE, 0);
	return true;
}

void confine_worker(const struct pool_config *config)
{
	if (lacks_hat) {
		_exit(EXIT_INTERNAL);
	}
	prctl(PR_SET_DUMPABLE, config->dumpable ? 1 : 0);
}
