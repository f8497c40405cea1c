//! What a thread keeps of ended requests and connections, so that later ones need not allocate it.

use std::cell::RefCell;

/// Objects of a thread that are not in use. Keep it in a `thread_local!`.
#[derive(Debug)]
pub struct Spare<T> {
    list: RefCell<Vec<T>>,
    most: usize,
}

impl<T> Spare<T> {
    /// Keeps at most so many.
    pub const fn new(most: usize) -> Spare<T> {
        let list = RefCell::new(Vec::new());
        Spare { list, most }
    }

    /// The one that was kept last.
    pub fn take(&self) -> Option<T> {
        self.list.borrow_mut().pop()
    }

    /// Takes an object that fits.
    pub fn take_if(&self, fits: impl Fn(&T) -> bool) -> Option<T> {
        let mut list = self.list.borrow_mut();
        let at = list.iter().position(fits)?;
        Some(list.swap_remove(at))
    }

    /// Keeps one, or drops it if there are enough.
    pub fn keep(&self, one: T) {
        let mut list = self.list.borrow_mut();
        if list.len() < self.most {
            list.push(one);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_are_kept_than_allowed() {
        let spare = Spare::new(2);
        assert_eq!(spare.take(), None);
        (1..=3).for_each(|one| spare.keep(one));
        assert_eq!(spare.take_if(|one| *one == 1), Some(1));
        assert_eq!((spare.take(), spare.take()), (Some(2), None));
    }
}
