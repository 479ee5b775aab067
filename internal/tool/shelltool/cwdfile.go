package shelltool

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/drover-dev/drover/internal/platform/saferoot"
)

// CwdFile is a file into which a script of bash writes its last working directory.
type CwdFile struct{ file *os.File }

// NewCwdFile makes the file in a folder that the script may write. The caller closes it.
func NewCwdFile(dir string) (*CwdFile, error) {
	at, err := saferoot.Near(filepath.Join(dir, "cwd-")).Folder(dir)
	if err != nil {
		return nil, fmt.Errorf("make a file for the working directory: %w", err)
	}
	defer at.Close()
	f, err := at.Temporary("cwd-")
	if err != nil {
		return nil, fmt.Errorf("make a file for the working directory: %w", err)
	}
	return &CwdFile{f}, nil
}

// Script is a script that writes the file. It does that only if the file is still there: a command that was moved to
// the background must not leave a file when it ends. The added text stays on the first line, so that the line numbers
// in messages of bash fit the command.
func (c *CwdFile) Script(line string) string {
	file := quote(c.file.Name())
	return "trap " + quote("[ -e "+file+" ] && pwd -P >| "+file+" 2>/dev/null") + " EXIT; " + line
}

// maxCwd bounds the path of a working directory.
const maxCwd = 4 << 10

// Dir returns the absolute directory; empty: none was written. It reads from the open file, since the command may have
// put a pipe or a link in its place.
func (c *CwdFile) Dir() string {
	data, err := io.ReadAll(io.LimitReader(c.file, maxCwd))
	if dir := strings.TrimSuffix(string(data), "\n"); err == nil && strings.HasPrefix(dir, "/") {
		return dir
	}
	return ""
}

// Close removes the file.
func (c *CwdFile) Close() {
	_ = saferoot.Near(c.file.Name()).Remove(c.file.Name()) // it may be gone
	_ = c.file.Close()                                     // nothing was written by this process
}
