//! Walks the files in the order of their paths.

use super::folder::{Entry, Fault, Folder};
use crate::{ListRequest, MAX_PATH_BYTES, ObjectInfo, ObjectPath, Page};

/// One page. Folders sort as if their names ended in `/`, which makes the order of the walk that of
/// whole paths. Folders that hold nothing of the page are not opened.
pub(super) fn list(files: &Folder, request: &ListRequest) -> Result<Page, Fault> {
    let limit = request.limit.max(1);
    let mut walk = Walk {
        request,
        // One more entry shows whether there is another page.
        wanted: limit.saturating_add(1),
        objects: Vec::new(),
    };
    walk.visit(files, "")?;
    let mut objects = walk.objects;
    let more = objects.len() > limit;
    objects.truncate(limit);
    let next = more.then(|| objects.last().map(|last| last.path.clone()));
    Ok(Page {
        objects,
        next: next.flatten(),
    })
}

struct Walk<'a> {
    request: &'a ListRequest,
    wanted: usize,
    objects: Vec<ObjectInfo>,
}

impl Walk<'_> {
    fn visit(&mut self, folder: &Folder, base: &str) -> Result<(), Fault> {
        let mut entries: Vec<(String, Entry)> = folder
            .entries()?
            .into_iter()
            .map(|entry| match &entry {
                Entry::Folder(name) => (format!("{base}{name}/"), entry),
                Entry::File(name, _) => (format!("{base}{name}"), entry),
            })
            .collect();
        entries.sort_by(|(left, _), (right, _)| left.cmp(right));
        for (path, entry) in entries {
            if self.objects.len() >= self.wanted {
                break;
            }
            match entry {
                Entry::Folder(name) if self.enters(&path) => {
                    let child = folder.child(&name);
                    match child.and_then(|child| self.visit(&child, &path)) {
                        // Removed or replaced since the folder was read.
                        Ok(()) | Err(Fault::Missing | Fault::NotFolder | Fault::Link) => {}
                        Err(fault) => return Err(fault),
                    }
                }
                Entry::Folder(_) => {}
                Entry::File(_, file) => {
                    if self.takes(&path)
                        && let Ok(path) = ObjectPath::parse(&path)
                    {
                        self.objects.push(file.info(path));
                    }
                }
            }
        }
        Ok(())
    }

    fn enters(&self, folder: &str) -> bool {
        let prefix = self.request.prefix.as_str();
        let within = folder.starts_with(prefix) || prefix.starts_with(folder);
        let after = self.request.after.as_ref().map(ObjectPath::as_str);
        let ahead = after.is_none_or(|after| after < folder || after.starts_with(folder));
        within && ahead && folder.len() <= MAX_PATH_BYTES
    }

    fn takes(&self, path: &str) -> bool {
        let after = self.request.after.as_ref().map(ObjectPath::as_str);
        path.starts_with(&self.request.prefix) && after.is_none_or(|after| after < path)
    }
}
