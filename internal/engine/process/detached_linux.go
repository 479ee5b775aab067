package process

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// lookAt reads the arguments with which a process was started, a path to its program, and
// whether it leads a session and belongs to this user. The program is the one that runs, even
// if the file has been replaced since.
func lookAt(p Proc) (args []string, program string, ours bool) {
	dir := "/proc/" + strconv.Itoa(p.PID)
	of, err := os.Stat(dir)
	if err != nil {
		return nil, "", false
	}
	st, ok := of.Sys().(*syscall.Stat_t)
	if !ok || int(st.Uid) != os.Geteuid() || p.Session != p.PID {
		return nil, "", false
	}
	line, err := os.ReadFile(dir + "/cmdline")
	if err != nil {
		return nil, "", false
	}
	return strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00"), dir + "/exe", true
}

// buildInfo begins what the linker writes about the modules of a Go program, and maxBuildInfo limits how much of a
// program is searched for it.
const (
	buildInfo    = "\xff Go buildinf:"
	maxBuildInfo = 4 << 20

	ptLoad     = 1 // a part of a program that is loaded
	pfWritable = 2
)

// isDrover reports whether a program is Drover, or embeds its library: its writable data, where the linker writes its
// modules, names the module. debug/buildinfo reads the same, and brings readers of every format of programs into each
// host.
func isDrover(program string) bool {
	f, err := os.Open(program)
	if err != nil {
		return false
	}
	defer f.Close()
	var head struct { // of an ELF file of 64 bits
		Magic          [4]byte
		Class          byte
		_              [27]byte
		ProgramHeaders uint64
		_              [14]byte
		Size, Number   uint16
	}
	err = binary.Read(f, binary.NativeEndian, &head)
	if err != nil || string(head.Magic[:]) != "\x7fELF" || head.Class != 2 {
		return false
	}
	for i := range int64(head.Number) {
		var part struct {
			Type, Flags    uint32
			Offset         uint64
			_, _, FileSize uint64
		}
		at := io.NewSectionReader(f, int64(head.ProgramHeaders)+i*int64(head.Size), 64)
		if err := binary.Read(at, binary.NativeEndian, &part); err != nil {
			return false
		}
		if part.Type != ptLoad || part.Flags&pfWritable == 0 {
			continue
		}
		data, err := io.ReadAll(io.NewSectionReader(f, int64(part.Offset), int64(min(part.FileSize, maxBuildInfo))))
		if _, info, found := bytes.Cut(data, []byte(buildInfo)); err == nil && found {
			return bytes.Contains(info, []byte("\nmod\t"+module+"\t")) || bytes.Contains(info, []byte("\ndep\t"+module+"\t"))
		}
	}
	return false
}
