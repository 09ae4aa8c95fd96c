package sqlite_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/id"
	"github.com/perdure/perdure/internal/session"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/sqlite"
)

// A step is four entries of 1 KiB. Besides the time of a step, the benchmarks report the bytes written to the disk for
// each of its 4 KiB (write-ahead log and checkpoints) and the bytes that the database file grows by.

func BenchmarkAppendAlone(b *testing.B)     { benchmarkAppend(b, 1) }
func BenchmarkAppend64Writers(b *testing.B) { benchmarkAppend(b, 64) }

func benchmarkAppend(b *testing.B, writers int) {
	ctx := context.Background()
	dir := b.TempDir()
	s, err := sqlite.Open(ctx, dir, sqlite.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	workspace := s.In("wrkspc")
	sessions := make([]string, writers)
	for i := range sessions {
		sessions[i] = id.New(id.Session)
		err := workspace.Update(ctx, func(w store.Writer) error {
			return w.CreateSession(store.Session{ID: sessions[i], Status: "running", Created: time.Now()}, nil)
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	payload := make([]byte, 1024)
	rand.Read(payload)
	before, file := diskWrites(b), fileSize(b, dir)
	b.ResetTimer()
	var left atomic.Int64
	left.Store(int64(b.N))
	var all sync.WaitGroup
	for _, name := range sessions {
		all.Go(func() {
			for head := int64(0); left.Add(-1) >= 0; head += 4 {
				events := make([]session.Event, 4)
				for i := range events {
					events[i] = session.Event{Seq: head + int64(i) + 1, ID: id.New(id.Event), Type: "agent.message", At: time.Now(), Body: payload}
				}
				err := workspace.Update(ctx, func(w store.Writer) error {
					return w.Append(store.Append{Session: name, Head: head, Events: events, Status: "running"})
				})
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	b.StopTimer()
	b.ReportMetric(float64(diskWrites(b)-before)/float64(b.N)/4096, "written/payload")
	b.ReportMetric(float64(fileSize(b, dir)-file)/float64(b.N)/4096, "stored/payload")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "steps/s")
}

// diskWrites is what this process has given to write calls so far.
func diskWrites(b *testing.B) int64 {
	text, err := os.ReadFile("/proc/self/io")
	if err != nil {
		b.Skip("needs /proc/self/io: ", err)
	}
	for line := range strings.Lines(string(text)) {
		var n int64
		if _, err := fmt.Sscanf(line, "wchar: %d", &n); err == nil {
			return n
		}
	}
	b.Fatal("/proc/self/io has no wchar")
	return 0
}

func fileSize(b *testing.B, dir string) int64 {
	info, err := os.Stat(dir + "/perdure.db")
	if err != nil {
		b.Fatal(err)
	}
	return info.Size()
}

// The oldest entry of a long log is the worst case of a search by id.
func BenchmarkEventByID(b *testing.B) {
	const entries = 20_000
	ctx := context.Background()
	s, err := sqlite.Open(ctx, b.TempDir(), sqlite.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	workspace := s.In("wrkspc")
	events := make([]session.Event, entries)
	for i := range events {
		events[i] = session.Event{Seq: int64(i) + 1, ID: id.New(id.Event), Type: "agent.message", At: time.Now(), Body: make([]byte, 2048)}
	}
	err = workspace.Update(ctx, func(w store.Writer) error {
		return w.CreateSession(store.Session{ID: "sesn", Status: "running", Created: time.Now(), Head: entries}, events)
	})
	if err != nil {
		b.Fatal(err)
	}
	for _, at := range []int{0, entries - 1} {
		b.Run(fmt.Sprintf("position %d of %d", at+1, entries), func(b *testing.B) {
			for b.Loop() {
				err := workspace.View(ctx, func(r store.Reader) error {
					_, err := r.Event("sesn", events[at].ID)
					return err
				})
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Deleting overwrites what is deleted, while other writers wait: some 8 ms for each MB.
func BenchmarkDeleteSession(b *testing.B) {
	const entries, payload = 2000, 100 << 10
	ctx := context.Background()
	s, err := sqlite.Open(ctx, b.TempDir(), sqlite.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	workspace := s.In("wrkspc")
	for b.Loop() {
		b.StopTimer()
		for head := int64(0); head < entries; head += 100 {
			err := workspace.Update(ctx, func(w store.Writer) error {
				if head == 0 {
					if err := w.CreateSession(store.Session{ID: "sesn", Status: "running", Created: time.Now()}, nil); err != nil {
						return err
					}
				}
				events := make([]session.Event, 100)
				for i := range events {
					events[i] = session.Event{Seq: head + int64(i) + 1, ID: id.New(id.Event), Type: "agent.message", At: time.Now(), Body: make([]byte, payload)}
				}
				return w.Append(store.Append{Session: "sesn", Head: head, Events: events})
			})
			if err != nil {
				b.Fatal(err)
			}
		}
		b.StartTimer()
		if err := workspace.Update(ctx, func(w store.Writer) error { return w.DeleteSession("sesn") }); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(entries*payload>>20, "MB")
}
