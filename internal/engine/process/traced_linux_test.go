package process_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/test/waittest"
)

// How a child ended is known also if somebody traces it, to whom the kernel shows
// the end first.
func TestTraced(t *testing.T) {
	const role = "PROCESS_TRACER"
	if pid := os.Getenv(role); pid != "" { // this is the tracer
		trace(t, pid)
		return
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	g := start(t, process.Command{Args: sh("read x; exit 7"), Stdin: r})
	tracer := exec.Command(os.Args[0], "-test.run=^TestTraced$")
	tracer.Env = append(os.Environ(), role+"="+strconv.Itoa(g.Identity().PID))
	in, err := tracer.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := tracer.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := tracer.Start(); err != nil {
		t.Fatal(err)
	}
	said, _ := bufio.NewReader(out).ReadString('\n')
	if said != "ready\n" {
		_ = tracer.Wait()
		t.Skipf("nothing can be traced here: %s", said)
	}
	fmt.Fprintln(w, "go")
	type end struct {
		process.Exit
		err error
	}
	ended := make(chan end, 1)
	ctx := waittest.Context(t, 30*time.Second)
	go func() {
		e, err := g.Wait(ctx)
		ended <- end{e, err}
	}()
	for !g.Ended() {
		runtime.Gosched()
	}
	if err := in.Close(); err != nil { // the tracer looks at the end
		t.Fatal(err)
	}
	if e := <-ended; e.err != nil || e.Code != 7 {
		t.Errorf("it ended with %+v, %v", e.Exit, e.err)
	}
	if err := tracer.Wait(); err != nil {
		t.Errorf("the tracer: %v", err)
	}
}

func trace(t *testing.T, number string) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pid, err := strconv.Atoi(number)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.PtraceSeize(pid); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	var ws syscall.WaitStatus
	for !ws.Exited() {
		if _, err := syscall.Wait4(pid, &ws, syscall.WALL, nil); err != nil {
			t.Fatal(err)
		}
	}
}
