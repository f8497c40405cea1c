//! Finds files by pattern, like glob(3).

use std::{
    ffi::{CStr, CString, OsString},
    mem::MaybeUninit,
    os::unix::ffi::OsStringExt,
    path::PathBuf,
    ptr,
};

/// The files that match `pattern`, sorted; folders end with a slash. It is no error if there are none.
///
/// # Errors
/// glob(3)'s number: 1 if memory is used up, 2 if a folder cannot be read.
pub fn files(pattern: &str) -> Result<Vec<PathBuf>, i32> {
    let Ok(pattern) = CString::new(pattern) else {
        // No file can have such a name.
        return Ok(Vec::new());
    };
    let mut found = MaybeUninit::<libc::glob_t>::zeroed();
    // SAFETY: the pattern is a C string, no function is given, and the result is memory of the right size and zeroed.
    let code = unsafe {
        libc::glob(
            pattern.as_ptr(),
            libc::GLOB_ERR | libc::GLOB_MARK,
            None,
            found.as_mut_ptr(),
        )
    };
    // SAFETY: all zeroes is a valid value, and so is any result of glob(3).
    let mut found = unsafe { found.assume_init() };
    let list = match code {
        0 => {
            let paths = match found.gl_pathv.is_null() {
                true => ptr::slice_from_raw_parts(ptr::dangling(), 0),
                false => ptr::slice_from_raw_parts(found.gl_pathv, found.gl_pathc),
            };
            // SAFETY: glob(3) has filled in this number of pointers, and nobody changes them before globfree(3).
            let paths = unsafe { &*paths };
            let path = |path: &*mut libc::c_char| {
                // SAFETY: each is a C string that lives until globfree(3).
                let bytes = unsafe { CStr::from_ptr(*path) }.to_bytes();
                PathBuf::from(OsString::from_vec(bytes.to_vec()))
            };
            Ok(paths.iter().map(path).collect())
        }
        libc::GLOB_NOMATCH => Ok(Vec::new()),
        code => Err(code),
    };
    // SAFETY: the value is glob(3)'s result, or zeroes. It is not used again.
    unsafe { libc::globfree(&raw mut found) };
    list
}

#[cfg(test)]
mod tests {
    use super::files;

    #[test]
    fn files_are_found_in_their_order_and_folders_are_marked() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b.conf", "a.conf", ".hidden.conf", "c.other"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        std::fs::create_dir(folder.path().join("d.conf")).unwrap();
        let root = folder.path().to_str().unwrap();
        let names = |pattern: &str| -> Vec<String> {
            let found = files(&format!("{root}/{pattern}")).unwrap();
            let name = |path: std::path::PathBuf| {
                let text = path.to_str().unwrap().to_owned();
                text.strip_prefix(&format!("{root}/")).unwrap().to_owned()
            };
            found.into_iter().map(name).collect()
        };
        assert_eq!(names("*.conf"), ["a.conf", "b.conf", "d.conf/"]);
        assert_eq!(names("[ab].conf"), ["a.conf", "b.conf"]);
        assert_eq!(names("none*"), [""; 0]);
        assert_eq!(files("/no/such/folder/*.conf"), Err(2));
    }
}
