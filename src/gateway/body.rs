//! What an answer is made of.

use std::{collections::VecDeque, os::fd::OwnedFd, sync::Arc};

use bytes::Bytes;

/// An answer before it is sent.
#[derive(Debug)]
pub struct Reply {
    /// Its status.
    pub status: http::StatusCode,
    /// Its headers.
    pub headers: http::HeaderMap,
    /// Its body.
    pub body: Body,
}

/// The body of a [`Reply`].
#[derive(Debug)]
pub enum Body {
    /// None.
    Empty,
    /// In memory.
    Bytes(Bytes),
    /// From memory and files, in order.
    Parts(VecDeque<Part>),
}

/// A piece of a [`Body`].
#[derive(Debug)]
pub enum Part {
    /// In memory.
    Bytes(Bytes),
    /// A range of a file.
    File {
        /// The file.
        file: Arc<OwnedFd>,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
}
