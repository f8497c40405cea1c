//! The output of `php-fpm -tt`: the configuration in force, in PHP-FPM's order.

use super::{
    Fpm,
    directives::{GLOBAL, Global, POOL, Pool},
};

/// The lines, without time and level.
pub fn dump(fpm: &Fpm) -> Vec<String> {
    let mut out = vec!["[global]".to_owned()];
    global(fpm.global.clone(), &mut out);
    out.push(" ".to_owned());
    for pool in fpm.pools.iter().filter(|pool| pool.status_of.is_none()) {
        out.push(format!("[{}]", pool.name));
        self::pool(pool.clone(), &mut out);
        out.push(" ".to_owned());
    }
    out
}

fn global(mut global: Global, out: &mut Vec<String>) {
    for (name, slot) in GLOBAL {
        out.push(format!("\t{name} = {}", slot.show(&mut global)));
    }
}

fn pool(mut pool: Pool, out: &mut Vec<String>) {
    for (name, slot) in POOL {
        let value = slot.show(&mut pool);
        match *name {
            // PHP-FPM prints this time without its unit, and does not print the hat.
            "pm.process_idle_timeout" => {
                out.push(format!("\t{name} = {}", value.trim_end_matches('s')))
            }
            "apparmor_hat" => {}
            _ => out.push(format!("\t{name} = {value}")),
        }
        if *name == "access.format" {
            let paths = pool.access_suppress_path.iter();
            out.extend(paths.map(|path| format!("\taccess.suppress_path[] = {path}")));
        }
    }
    for (table, pairs) in [
        ("env", &pool.env),
        ("php_value", &pool.php_values),
        ("php_admin_value", &pool.php_admin_values),
    ] {
        out.extend(
            pairs
                .iter()
                .map(|(key, value)| format!("\t{table}[{key}] = {value}")),
        );
    }
}
