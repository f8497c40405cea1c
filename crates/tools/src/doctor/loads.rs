//! Which pools share a load of PHP, and which load it for themselves, and why: what `weir check` says of a configuration.

use std::collections::BTreeMap;

use weir_config::Config;
use weir_manager::php_loads;

use super::php::Answer;

/// For each load a line; none if there is at most one pool of weir's own PHP, or another user would start weir.
pub(super) fn lines(config: &Config, asked: &[Option<Answer>]) -> Vec<String> {
    let loads = php_loads(config).unwrap_or_default();
    let mut shared: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
    let mut own: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for ((pool, load), answer) in config.pools.iter().zip(&loads).zip(asked) {
        let Some(load) = load else { continue };
        let declined = match answer {
            Some(Ok(php)) => php.needs_own_load(),
            // The template's state is not known. Other messages say why.
            Some(Err(_)) | None => None,
        };
        match (load, declined) {
            (Err(why), _) => own.entry(*why).or_default().push(&pool.name),
            (Ok(_), Some(why)) => own.entry(why).or_default().push(&pool.name),
            (Ok(number), None) => shared.entry(*number).or_default().push(&pool.name),
        }
    }
    told(&shared.into_values().collect::<Vec<_>>(), &own)
}

fn told(shared: &[Vec<&str>], own: &BTreeMap<&str, Vec<&str>>) -> Vec<String> {
    let count: usize = shared.iter().chain(own.values()).map(Vec::len).sum();
    if count < 2 {
        return Vec::new();
    }
    if let ([all], true) = (shared, own.is_empty()) {
        return vec![format!("PHP is loaded once for all {} pools", all.len())];
    }
    let of_one = |pools: &Vec<&str>| {
        let named = names(pools);
        format!("PHP is loaded once for {} pools: {named}", pools.len())
    };
    let of_own = |(why, pools): (&&str, &Vec<&str>)| match pools[..] {
        [pool] => format!("PHP is loaded for pool {pool} alone: {why}"),
        _ => {
            let (count, named) = (pools.len(), names(pools));
            format!("PHP is loaded {count} times, for each of these pools alone: {named}: {why}")
        }
    };
    let shared = shared.iter().map(of_one);
    shared.chain(own.iter().map(of_own)).collect()
}

/// The first names, and how many there are more.
fn names(pools: &[&str]) -> String {
    let (first, more) = pools.split_at(pools.len().min(MOST_NAMES));
    match more.len() {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

/// Names of pools in one line.
const MOST_NAMES: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_load_is_one_line_and_each_exception_is_another_one() {
        let none = BTreeMap::new();
        assert_eq!(told(&[], &none), [""; 0]);
        assert_eq!(told(&[], &BTreeMap::from([("x", vec!["a"])])), [""; 0]);
        assert_eq!(
            told(&[vec!["a", "b", "c"]], &none),
            ["PHP is loaded once for all 3 pools"]
        );
        let own = BTreeMap::from([("its user is root", vec!["g"]), ("why", vec!["h", "i"])]);
        assert_eq!(
            told(
                &[vec!["a", "b"], vec!["1", "2", "3", "4", "5", "6", "7"]],
                &own
            ),
            [
                "PHP is loaded once for 2 pools: a, b",
                "PHP is loaded once for 7 pools: 1, 2, 3, 4, 5 and 2 more",
                "PHP is loaded for pool g alone: its user is root",
                "PHP is loaded 2 times, for each of these pools alone: h, i: why",
            ]
        );
    }
}
