package folder

import (
	"os"
	"path/filepath"
)

// temporary makes a folder for one call, by its real path.
func temporary() (dir string, remove func(), err error) {
	dir, err = os.MkdirTemp("", "drover-folder-")
	if err != nil {
		return "", nil, err
	}
	remove = func() { _ = os.RemoveAll(dir) }
	real, err := filepath.EvalSymlinks(dir)
	if err == nil {
		err = os.Mkdir(filepath.Join(real, objectsName), 0o700)
	}
	if err != nil {
		remove()
		return "", nil, err
	}
	return real, remove, nil
}

// Names in a temporary folder.
const (
	objectsName = "objects" // those that git writes
	indexName   = "index"
	packName    = "pack"
)
