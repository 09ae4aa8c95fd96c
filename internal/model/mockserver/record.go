package mockserver

import (
	"maps"
	"net/http"
	"slices"
	"sync"

	"github.com/perdure/perdure/internal/model"
)

// maxRecordedBytes bounds the bodies of all records together.
const maxRecordedBytes = 256 << 20

// Outcome says how a request ended.
type Outcome string

// The outcomes.
const (
	Complete Outcome = "complete" // the whole answer was sent
	Refused  Outcome = "refused"  // the request was not acceptable
	Failed   Outcome = "failed"   // the script answered with an error
	Broken   Outcome = "broken"   // the script broke the answer off
	Closed   Outcome = "closed"   // the client went away before the end
)

// Record is one request of POST /v1/messages and what became of it.
type Record struct {
	Session string
	Model   string
	Header  http.Header // without credentials
	Body    []byte      // not to be changed
	Status  int
	Outcome Outcome
	Message string // the error, for Refused and Failed
	Usage   model.Usage

	abort        bool // the connection is to be dropped
	began, ended bool
}

type recorder struct {
	mu      sync.Mutex
	limit   int
	records []Record
	bytes   int
	running map[string]int
	most    map[string]int
}

func (r *recorder) begin(session string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running == nil {
		r.running, r.most = map[string]int{}, map[string]int{}
	}
	if len(r.most) >= 10*r.limit {
		// Bounded like the records: those that run are kept.
		r.most = maps.Clone(r.running)
	}
	r.running[session]++
	r.most[session] = max(r.most[session], r.running[session])
}

func (r *recorder) finish(session string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running[session]--; r.running[session] <= 0 {
		delete(r.running, session)
	}
}

func (r *recorder) add(record Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.records = append(r.records, record)
	r.bytes += len(record.Body)
	drop := 0
	for len(r.records)-drop > r.limit || r.bytes > maxRecordedBytes {
		r.bytes -= len(r.records[drop].Body)
		drop++
	}
	r.records = slices.Delete(r.records, 0, drop)
}

// Records returns the requests that have ended, oldest first.
func (s *Server) Records() []Record {
	s.record.mu.Lock()
	defer s.record.mu.Unlock()
	return slices.Clone(s.record.records)
}

// RecordsOf returns the requests of one session that have ended, oldest first.
func (s *Server) RecordsOf(session string) []Record {
	return slices.DeleteFunc(s.Records(), func(record Record) bool { return record.Session != session })
}

// Refusals returns the requests that were not acceptable. A client that does right has none.
func (s *Server) Refusals() []Record {
	return slices.DeleteFunc(s.Records(), func(record Record) bool { return record.Outcome != Refused })
}

// Running is the number of requests of a session that are being answered.
func (s *Server) Running(session string) int {
	s.record.mu.Lock()
	defer s.record.mu.Unlock()
	return s.record.running[session]
}

// MostConcurrent is the largest number of requests of a session that ever ran at once. More than one means that two
// drivers ran the same session, unless it has several threads.
func (s *Server) MostConcurrent(session string) int {
	s.record.mu.Lock()
	defer s.record.mu.Unlock()
	return s.record.most[session]
}

func withoutCredentials(header http.Header) http.Header {
	header = header.Clone()
	for _, name := range []string{"Authorization", "X-Api-Key", "Cookie", "Proxy-Authorization"} {
		header.Del(name)
	}
	return header
}
