//! How many reactors a gateway has.

/// How many reactors (threads that serve clients) a gateway has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reactors {
    /// Their number, at least 1; if it is `elastic`, the highest one.
    pub most: u16,
    /// As many run as the load needs.
    pub elastic: bool,
}

impl Reactors {
    /// How many of them accept connections: those with the lowest numbers. If the number is elastic, they give
    /// connections to the others, so that a reactor that is stopped has no listening socket.
    pub fn acceptors(self) -> u16 {
        match self.elastic {
            true => self.most.div_ceil(PER_ACCEPTOR),
            false => self.most,
        }
        .max(1)
    }
}

/// For how many reactors one can accept all connections, even if each has only one request.
const PER_ACCEPTOR: u16 = 8;
