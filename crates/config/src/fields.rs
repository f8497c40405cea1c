//! Which field of the model each key fills. Keys that need more than that are in `build.rs` and its siblings, which
//! read them, and in `print.rs`, which shows them.

use crate::{
    field::Field,
    model::{
        Acme, Cache, CacheRules, Certificate, Egress, FastCgi, HostSettings, Http2Limits, Listener,
        Log, Php, Policy, Pool, Program, Queue, Server, Servers, Settings, Tls, Workers,
    },
};

/// A struct whose fields keys fill.
pub(crate) trait Fields: Clone + Default + Send + 'static {
    /// The field of a key; `None`: the key does not fill a field alone.
    fn field(&self, key: &str) -> Option<&dyn Field>;

    /// As [`Self::field`], to be filled.
    fn field_mut(&mut self, key: &str) -> Option<&mut dyn Field>;
}

/// Lists the keys of a struct: `key`, or `key in field` if they have different names.
macro_rules! fields {
    (@of $of:ident $key:ident) => { $of.$key };
    (@of $of:ident $key:ident $field:ident) => { $of.$field };
    ($($model:ident { $($key:ident $(in $field:ident)?),* $(,)? })*) => {$(
        impl Fields for $model {
            fn field(&self, key: &str) -> Option<&dyn Field> {
                let model = self;
                match key {
                    $(stringify!($key) => Some(&fields!(@of model $key $($field)?)),)*
                    _ => None,
                }
            }

            fn field_mut(&mut self, key: &str) -> Option<&mut dyn Field> {
                let model = self;
                match key {
                    $(stringify!($key) => Some(&mut fields!(@of model $key $($field)?)),)*
                    _ => None,
                }
            }
        }
    )*};
}

fields! {
    Server {
        user, group, chroot, threads, pid_file, state_dir, shutdown_timeout, shutdown_delay, max_old_generations, upgrade_timeout, gateway_timeout, max_connections,
        max_connections_per_address, trusted, forwarded_by, untrusted_forwarded in passes_untrusted,
        max_rate_clients, max_waiting_passwords, spool_dir, max_spool, compress_threads, compress_memory, compress_cache, http2_memory,
        server_software, admin, admin_tcp, admin_token_file,
        ready_pools, ready_saturation, ready_stalled, site_histograms, pool_histograms, process_priority in priority, resolver, process_max, php_starts,
        emergency_restart_threshold, emergency_restart_interval,
    }
    Listener {
        backlog, ipv6only, owner, group, mode, acl_users, acl_groups, max_head, max_headers, header_timeout,
        body_timeout, idle_timeout, send_timeout, max_requests_per_connection, proxy_protocol,
        http2, http3,
    }
    Http2Limits {
        http2_max_streams in streams, http2_max_resets in resets, http2_max_pings in pings,
        http2_max_settings in settings, http2_max_small_frames in small_frames, http2_stream_window in stream_window,
        http2_window in window, http2_ping in ping,
    }
    Tls { min_version in only_tls13, key_isolation, certificates }
    Acme {
        email, directory, ca_file, challenge, dns_command, dns_timeout, dns_wait, local_names, ask, ask_timeout, ask_wait,
        ask_keep, ask_rate, ask_order_rate, ask_max, profile, eab_key_id, eab_key_file,
    }
    Certificate { chain, key }
    FastCgi { status_only, on_worker_failure in answers_failures, proxy_status, allowed_clients }
    Settings {
        root, script_root, index, script, fallback, check_files, encoded_slash, params, pass_headers,
        underscores_in_headers, hide_files, deny_scripts, error_pages, cache_control, set_headers, remove_headers,
        set_request_headers, charset, types, precompressed, compress, compress_types, compress_min_size,
        compress_cross_site, follow_symlinks, max_body, body_memory, response_memory,
        max_response_file, buffering, accel_redirect, sendfile_dirs, access_log, allow, deny, rate, hsts,
        basic_auth, bandwidth,
    }
    Policy { timeout, timeout_header, priority, priority_by, fair_by, serialize_by, on_client_left }
    Pool {
        keep_conn, max_reqs, connect_timeout, read_timeout, request_terminate_timeout,
        request_terminate_timeout_track_finished, retries, max_response_head, limit_extensions, status_path, ping_path,
        ping_response, access_log, access_format, access_suppress_path,
    }
    Php {
        php in version, php_ini in ini, no_php_ini in no_ini, php_define in define, opcache_memory, worker,
        worker_requests, worker_boot_timeout, worker_zygote, php_load in own_load, watch_root,
        request_slowlog_timeout in slowlog_timeout, request_slowlog_trace_depth in slowlog_depth, slowlog,
        process_dumpable in dumpable, apparmor_hat, master_idle_timeout in idle_timeout,
    }
    Workers {
        max_children, self_call_workers, worker_memory, max_spawn_rate, crash_limit, crash_window, crash_pause,
        process_idle_timeout in idle_timeout, max_requests, max_memory, user, group, chroot, chdir, clear_env, env,
        rlimit_files, rlimit_core, rlimit_processes, process_priority in priority, output_log, decorate_output,
    }
    Program { instances, restart, schedule, timezone, overlap, max_runtime, stop_timeout }
    Queue {
        maxconn, max_queue, when_full in waits_when_full, timeout, reserve, serialize_by, serialize_queue, client_share,
        order,
    }
    Servers {
        sticky, check_interval, check_timeout, rise, fall, slowstart, max_fails, fail_timeout, resolve_min, resolve_max,
    }
    Cache { memory, max_object, max_objects, disk, max_disk, file_from, bus, bus_user, bus_password_file, bus_stream }
    CacheRules {
        preset, ttl, grace, stale_wait, bypass_cookies, bypass_paths, bypass_query, drop_query, sort_query, vary_cookies, mobile,
        ignore_vary, max_variants, public_if, client_directives, purge_on, purge_params, login_paths, cache_status,
    }
    Egress {
        listen, socket, owner, group, mode, token_file, threads, max_connections, max_hosts, upgrade, connect,
        cache_size, cache_max_object,
    }
    HostSettings {
        keepalive, keepalive_timeout, keepalive_time, preconnect, http2, maxconn, max_queue, queue_timeout,
        connect_timeout, first_byte_timeout, read_timeout, timeout, retries, retry_budget, max_fails, fail_timeout,
        resolve_min, resolve_max, verify, ca_file, set_headers, forwarded, traceparent, compress, cache, stale_if_error,
        max_response_head,
    }
    Log { access, format, egress, error, level, error_format, error_limit, error_buffering, syslog_ident }
}
