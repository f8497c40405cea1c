//! Who is counted how, and how many may come.

use super::*;

#[test]
fn clients_of_ipv6_are_counted_by_their_network() {
    let of = |address: &str| network_of(address.parse().unwrap()).to_string();
    assert_eq!(of("192.0.2.7"), "192.0.2.7");
    assert_eq!(of("::ffff:192.0.2.7"), "192.0.2.7");
    assert_eq!(of("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
    assert_eq!(
        of("2001:db8:1:2::1"),
        of("2001:db8:1:2:ffff:ffff:ffff:ffff")
    );
    assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
}

#[test]
fn a_network_has_as_many_places_as_it_may() {
    let limits: &'static ConnectionLimits =
        Box::leak(Box::new(ConnectionLimits::new((10, 2), 1, 1)));
    let enter = |address: &str| limits.enter(Some(SocketAddr::new(address.parse().unwrap(), 1)));
    let (_first, second) = (enter("2001:db8::1").unwrap(), enter("2001:db8::2").unwrap());
    assert!(enter("2001:db8::3").is_none());
    assert!(enter("2001:db8:0:1::3").is_some());
    drop(second);
    assert!(enter("2001:db8::3").is_some());
    assert!(limits.per_address.lock().unwrap().len() == 1);
}

#[test]
fn room_is_taken_once_and_given_back() {
    let limits: &'static ConnectionLimits =
        Box::leak(Box::new(ConnectionLimits::new((2, 0), 1, 1)));
    let mut places: Vec<ConnectionPermit> = (0..3).map(|_| limits.enter(None).unwrap()).collect();
    assert!(limits.take(&mut places[0]) && limits.take(&mut places[1]));
    assert!(limits.take(&mut places[0]) && !limits.take(&mut places[2]));
    assert_eq!(limits.count(), 2);
    places.remove(0);
    assert!(limits.take(&mut places[1]));
    places.clear();
    assert_eq!(limits.count(), 0);
}
