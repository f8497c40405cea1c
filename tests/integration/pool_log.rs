//! A pool's `access_log`.
