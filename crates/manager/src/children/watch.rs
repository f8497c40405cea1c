//! What the manager reads of masters, templates and workers. With a thousand pools these are thousands of descriptors. So the kernel keeps
//! the set (epoll(7)): to pass all of them to poll(2) at each turn of the loop took longer than the work of that turn.
//!
//! A descriptor is added when it is made, and leaves the set when it is closed.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
};

use weir_observe::events::Stream;
use weir_sys::epoll::Set;

use crate::{
    output::Outputs,
    php::{MasterId, Part, TemplateId},
};

/// The set.
#[derive(Debug)]
pub(crate) struct Watch(Set);

/// A source of output or reports. In the order in which those that are ready at the same time are read: what a master reports of a worker comes
/// before the worker's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// A master's reports.
    Master(MasterId),
    /// Something of a template.
    Template(TemplateId, Part),
    /// Entries for the slow log.
    SlowLog(MasterId),
    /// What a master prints.
    MasterOutput(MasterId, Stream),
    /// What a worker or a zygote prints, by its number.
    WorkerOutput(u32, Stream),
    /// What a process of a program prints, by its number.
    ProgramOutput(u32, Stream),
}

impl Watch {
    /// An empty set.
    ///
    /// # Errors
    /// As epoll_create1(2).
    pub(crate) fn new() -> io::Result<Self> {
        Set::new().map(Self)
    }

    /// Adds a descriptor until it is closed.
    ///
    /// # Errors
    /// As epoll_ctl(2).
    pub(crate) fn add(&self, fd: BorrowedFd<'_>, source: Source) -> io::Result<()> {
        self.0.add(fd, source.key())
    }

    /// Adds both outputs of a process.
    ///
    /// # Errors
    /// As epoll_ctl(2).
    pub(crate) fn add_outputs(
        &self,
        outputs: &Outputs,
        source: impl Fn(Stream) -> Source,
    ) -> io::Result<()> {
        let mut descriptors = outputs.descriptors();
        descriptors.try_for_each(|(stream, fd)| self.add(fd, source(stream)))
    }

    /// What can be read now. Never waits.
    ///
    /// # Errors
    /// As epoll_wait(2).
    pub(crate) fn ready(&self) -> io::Result<impl Iterator<Item = Source> + use<>> {
        let mut keys = Vec::new();
        self.0.ready(&mut keys)?;
        keys.sort_unstable();
        Ok(keys.into_iter().filter_map(Source::of_key))
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Source {
    /// Its kind, then its number.
    fn key(self) -> u64 {
        let (kind, number) = match self {
            Self::Master(MasterId(number)) => (0, number),
            Self::Template(TemplateId(number), Part::Channel) => (1, number),
            Self::Template(TemplateId(number), Part::Output(Stream::Stdout)) => (2, number),
            Self::Template(TemplateId(number), Part::Output(Stream::Stderr)) => (3, number),
            Self::SlowLog(MasterId(number)) => (4, number),
            Self::MasterOutput(MasterId(number), Stream::Stdout) => (5, number),
            Self::MasterOutput(MasterId(number), Stream::Stderr) => (6, number),
            Self::WorkerOutput(number, Stream::Stdout) => (7, number),
            Self::WorkerOutput(number, Stream::Stderr) => (8, number),
            Self::ProgramOutput(number, Stream::Stdout) => (9, number),
            Self::ProgramOutput(number, Stream::Stderr) => (10, number),
        };
        kind << 32 | u64::from(number)
    }

    fn of_key(key: u64) -> Option<Self> {
        let number = u32::try_from(key & u64::from(u32::MAX)).ok()?;
        let (master, template) = (MasterId(number), TemplateId(number));
        Some(match key >> 32 {
            0 => Self::Master(master),
            1 => Self::Template(template, Part::Channel),
            2 => Self::Template(template, Part::Output(Stream::Stdout)),
            3 => Self::Template(template, Part::Output(Stream::Stderr)),
            4 => Self::SlowLog(master),
            5 => Self::MasterOutput(master, Stream::Stdout),
            6 => Self::MasterOutput(master, Stream::Stderr),
            7 => Self::WorkerOutput(number, Stream::Stdout),
            8 => Self::WorkerOutput(number, Stream::Stderr),
            9 => Self::ProgramOutput(number, Stream::Stdout),
            10 => Self::ProgramOutput(number, Stream::Stderr),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_source_has_a_key_of_its_own_and_reports_come_before_output() {
        let mut all = Vec::new();
        for number in [0, 7, u32::MAX] {
            let (master, template) = (MasterId(number), TemplateId(number));
            all.extend([
                Source::Master(master),
                Source::Template(template, Part::Channel),
                Source::SlowLog(master),
            ]);
            for stream in [Stream::Stdout, Stream::Stderr] {
                all.extend([
                    Source::Template(template, Part::Output(stream)),
                    Source::MasterOutput(master, stream),
                    Source::WorkerOutput(number, stream),
                    Source::ProgramOutput(number, stream),
                ]);
            }
        }
        for source in &all {
            assert_eq!(Source::of_key(source.key()), Some(*source));
        }
        let report = Source::Master(MasterId(u32::MAX)).key();
        assert!(report < Source::WorkerOutput(0, Stream::Stdout).key());
        assert_eq!(Source::of_key(u64::MAX), None);
    }
}
