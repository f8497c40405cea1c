//! stub
use std::sync::Arc;
use hyper::body::Incoming;
use http::{Request,Response,StatusCode};
use super::{Gateway, client_io::Conn, body::{Outgoing,Body}, record::Record};
pub(crate) async fn exchange(gateway: Arc<Gateway>, conn: Arc<Conn>, request: Request<Incoming>) -> Response<Outgoing> {
    let (parts, _body) = request.into_parts();
    let record = Record::new(gateway, &conn, parts);
    Response::new(Outgoing::new(Body::Empty, None, conn, record))
}
pub(crate) fn refused_head(_: &Gateway, _: &Conn, _: StatusCode, _: &str) {}
