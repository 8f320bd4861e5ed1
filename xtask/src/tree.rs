//! A second worktree of the repository, for commands that edit the code or need the code of another commit. The
//! checkout itself is left alone.

use std::{fs, path::PathBuf};

use anyhow::Result;

use crate::{paths, shell};

/// A worktree below the build outputs, at a commit and without any change.
pub struct Tree {
    /// Its root.
    pub path: PathBuf,
}

impl Tree {
    /// The worktree `<name>/tree` of the build outputs at the commit that is checked out here.
    pub fn at_head(name: &str) -> Result<Self> {
        Self::at(name, "HEAD")
    }

    /// The worktree `<name>/tree` of the build outputs at a commit; it is created if it is missing.
    pub fn at(name: &str, revision: &str) -> Result<Self> {
        let folder = paths::target(name);
        fs::create_dir_all(&folder)?;
        let tree = Self {
            path: folder.join("tree"),
        };
        let commit = format!("{revision}^{{commit}}");
        let commit = shell::output(shell::command("git").args(["rev-parse", "--verify", &commit]))?;
        if tree.path.join(".git").exists() {
            tree.git(&["checkout", "--quiet", "--force", "--detach", commit.trim()])?;
            tree.git(&["clean", "--quiet", "--force", "-d"])?;
            return Ok(tree);
        }
        // A worktree whose folder was removed may still be listed.
        shell::run(shell::command("git").args(["worktree", "prune"]))?;
        let add = ["worktree", "add", "--quiet", "--detach"];
        let mut add_tree = shell::command("git");
        add_tree.args(add).arg(&tree.path).arg(commit.trim());
        shell::run(&mut add_tree)?;
        Ok(tree)
    }

    /// Runs git in the worktree.
    pub fn git(&self, arguments: &[&str]) -> Result<()> {
        let mut git = shell::command("git");
        git.arg("-C").arg(&self.path).args(arguments);
        shell::output(&mut git).map(drop)
    }
}
