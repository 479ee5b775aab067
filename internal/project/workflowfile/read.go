package workflowfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/drover-dev/drover/internal/platform/untrusted"
)

// Read reads the file of a workflow and follows links.
func Read(path string) ([]byte, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, plainError(err)
	}
	root, err := os.OpenRoot(filepath.Dir(real))
	if err != nil {
		return nil, plainError(err)
	}
	defer root.Close()
	return untrusted.Read(root, filepath.Base(real), MaxBytes)
}

// plainError removes the names of system calls and of files from an error.
func plainError(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	return err
}
