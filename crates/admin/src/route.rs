//! The paths of the admin interface.

use weir_control::Action;

use super::page::Part;

/// The meaning of a path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// A file of the page.
    Page(Part),
    /// Of this pool, or of all.
    Status(Option<String>),
    /// Of this pool, or of all.
    Metrics(Option<String>),
    Healthy,
    Ready,
    /// What the cache holds.
    Cache,
    /// What it has for a URL: the query.
    CacheWhy(String),
    /// Answers are purged: the query.
    CachePurge(String),
    Act(Action),
}

/// The meaning of `path`; `None`: unknown path.
///
/// # Errors
/// What is wrong with the query of an action.
pub(super) fn route(path: &str, query: Option<&str>) -> Result<Option<Route>, String> {
    let route = match path {
        "/status" => Route::Status(only(query)?),
        "/metrics" => Route::Metrics(only(query)?),
        "/healthz" => Route::Healthy,
        "/readyz" => Route::Ready,
        "/cache" => Route::Cache,
        "/cache/why" => Route::CacheWhy(query.unwrap_or_default().to_owned()),
        "/cache/purge" => Route::CachePurge(query.unwrap_or_default().to_owned()),
        "/reload" => Route::Act(Action::Reload),
        "/upgrade" => Route::Act(Action::Upgrade),
        "/drain" => match query {
            None => Route::Act(Action::Decline { on: true }),
            Some("off") => Route::Act(Action::Decline { on: false }),
            Some(_) => return Err("POST /drain, or /drain?off".into()),
        },
        "/stop" if query == Some("now") => Route::Act(Action::StopNow),
        "/stop" => Route::Act(Action::Stop),
        path => match Part::at(path) {
            Some(part) => Route::Page(part),
            None => return of_pool(path, query),
        },
    };
    Ok(Some(route))
}

/// `pool=NAME`. Other parameters are ignored: monitoring systems may add some.
fn only(query: Option<&str>) -> Result<Option<String>, String> {
    let pairs = query.into_iter().flat_map(|query| query.split('&'));
    let Some(name) = pairs.filter_map(|pair| pair.strip_prefix("pool=")).next() else {
        return Ok(None);
    };
    match percent_encoding::percent_decode_str(name).decode_utf8() {
        Ok(name) if !name.is_empty() => Ok(Some(name.into_owned())),
        _ => Err("pool= needs the name of a pool".into()),
    }
}

fn of_pool(path: &str, query: Option<&str>) -> Result<Option<Route>, String> {
    let Some((name, action)) = path
        .strip_prefix("/pool/")
        .and_then(|rest| rest.rsplit_once('/'))
    else {
        return Ok(None);
    };
    let name = percent_encoding::percent_decode_str(name).decode_utf8();
    let pool = match name {
        Ok(name) if !name.is_empty() => name.into_owned(),
        _ => return Ok(None),
    };
    Ok(match action {
        "restart" => Some(Route::Act(Action::RestartPool { pool })),
        "set" => Some(Route::Act(set(pool, query.unwrap_or_default())?)),
        _ => None,
    })
}

/// `max_children=N&maxconn=N`
fn set(pool: String, query: &str) -> Result<Action, String> {
    let (mut max_children, mut maxconn) = (None, None);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let limit = match key {
            "max_children" => &mut max_children,
            "maxconn" => &mut maxconn,
            key => {
                return Err(format!(
                    "{key} cannot be changed while weir is running; possible are max_children=N and maxconn=N"
                ));
            }
        };
        let number = value.parse().ok().filter(|number: &u32| *number > 0);
        *limit = Some(number.ok_or_else(|| format!("{key} must be a whole number of 1 or more"))?);
    }
    match (max_children, maxconn) {
        (None, None) => Err("nothing to set: write max_children=N or maxconn=N".into()),
        (max_children, maxconn) => Ok(Action::SetPool {
            pool,
            max_children,
            maxconn,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_what_they_say() {
        let restart = |pool: &str| {
            Some(Route::Act(Action::RestartPool {
                pool: pool.to_owned(),
            }))
        };
        let route = |path, query| route(path, query).unwrap();
        assert_eq!(route("/pool/shop/restart", None), restart("shop"));
        assert_eq!(route("/pool/a%2Fb/restart", None), restart("a/b"));
        let status = |pool: Option<&str>| Some(Route::Status(pool.map(str::to_owned)));
        assert_eq!(route("/status", None), status(None));
        assert_eq!(
            route("/status", Some("t=1&pool=a%2Fb")),
            status(Some("a/b"))
        );
        let stop = |action| Some(Route::Act(action));
        assert_eq!(route("/stop", Some("now")), stop(Action::StopNow));
        assert_eq!(route("/stop", Some("later")), stop(Action::Stop));
        assert_eq!(
            route("/drain", Some("off")),
            stop(Action::Decline { on: false })
        );
        for unknown in [
            "/pool//restart",
            "/pool/shop",
            "/pool/shop/burn",
            "/pool/%ff/restart",
            "/status/",
            "/page",
        ] {
            assert_eq!(route(unknown, None), None, "{unknown}");
        }
    }

    #[test]
    fn a_pool_has_a_name() {
        for wrong in ["pool=", "pool=%ff"] {
            assert!(route("/metrics", Some(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn limits_are_numbers() {
        let set = |query| route("/pool/shop/set", Some(query));
        let wanted = Action::SetPool {
            pool: "shop".into(),
            max_children: Some(5),
            maxconn: None,
        };
        assert_eq!(set("max_children=5"), Ok(Some(Route::Act(wanted))));
        for wrong in [
            "",
            "maxconn",
            "maxconn=0",
            "maxconn=-1",
            "maxconn=5000000000",
            "pm=static",
        ] {
            assert!(set(wrong).is_err(), "{wrong}");
        }
    }
}
