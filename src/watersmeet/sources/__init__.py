"""Sources of rows: tables, frames, iterators of batches, files and directories, each as a feed of Arrow tables."""
