package mcptest

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// ServeStdio speaks with one client until its stream ends.
func (s *Server) ServeStdio(in io.Reader, out io.Writer) {
	var mu sync.Mutex
	write := func(frame []byte) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = out.Write(append(frame, '\n')) // a client that has gone ends the stream
	}
	p := s.join()
	gone := make(chan struct{})
	var work sync.WaitGroup
	defer work.Wait()
	defer s.Close()
	defer close(gone)
	defer s.leave(p)
	work.Go(func() {
		for {
			select {
			case frame := <-p.told:
				write(frame)
			case <-gone:
				return
			}
		}
	})
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var m message
		if json.Unmarshal(lines.Bytes(), &m) != nil {
			continue
		}
		work.Go(func() {
			if res, ok := s.handle(context.Background(), m, write).(message); ok {
				write(encode(res))
			}
		})
	}
}

// ServeHTTP is streamable HTTP, with a stream for notifications.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodGet:
		s.stream(w, r)
		return
	case http.MethodDelete:
		s.mu.Lock()
		delete(s.sessions, r.Header.Get("Mcp-Session-Id"))
		s.mu.Unlock()
		return
	}
	var m message
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if m.Method == "initialize" && !s.o.Extension {
		id := rand.Text()
		s.mu.Lock()
		s.sessions[id] = nil
		s.mu.Unlock()
		w.Header().Set("Mcp-Session-Id", id)
	} else if !s.knows(r) {
		http.Error(w, "no such session", http.StatusNotFound)
		return
	}
	if m.ID == nil || m.Method == "" {
		s.handle(r.Context(), m, nil)
		w.WriteHeader(http.StatusAccepted)
		return
	}
	s.events(w, r, m)
}

func (s *Server) knows(r *http.Request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.sessions[r.Header.Get("Mcp-Session-Id")]
	return ok || s.o.Extension
}

// events answers a request on a stream of events. The answer that does not come
// breaks the connection.
func (s *Server) events(w http.ResponseWriter, r *http.Request, m message) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush() // the client may have gone
	frames, done := make(chan []byte), make(chan any, 1)
	s.work.Go(func() {
		done <- s.handle(r.Context(), m, func(frame []byte) {
			select {
			case frames <- frame:
			case <-r.Context().Done():
			}
		})
	})
	for {
		select {
		case frame := <-frames:
			event(w, frame)
		case res := <-done:
			m, ok := res.(message)
			if !ok {
				panic(http.ErrAbortHandler)
			}
			event(w, encode(m))
			return
		case <-r.Context().Done():
			return
		}
	}
}

func event(w http.ResponseWriter, frame []byte) {
	_, _ = fmt.Fprintf(w, "data: %s\n\n", frame) // the client may have gone
	_ = http.NewResponseController(w).Flush()
}

func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	if !s.knows(r) {
		http.Error(w, "no such session", http.StatusNotFound)
		return
	}
	p := s.join()
	defer s.leave(p)
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	for {
		select {
		case frame := <-p.told:
			event(w, frame)
		case <-r.Context().Done():
			return
		case <-s.quit:
			return
		}
	}
}
