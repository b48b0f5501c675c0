// The function that a wrapper's code calls before and after each launch. It reads the clock, and writes the time to the
// rows of the call and to a cell of the launch ring. The same statements in Python are in tracer/inductor/code_swap.py.
#include <Python.h>

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <structmember.h>  // members of types, before Python 3.12
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

namespace {

struct Tick {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  Py_buffer cells;
  PyObject* rows;
};

// Returns the clock of time.perf_counter_ns on Linux.
long long now_ns() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000000000LL + time.tv_nsec;
}

// Records that a launch has returned, with arguments (cell), or is about to begin, with (cell, site).
PyObject* tick(PyObject* self, PyObject* const* arguments, size_t flags, PyObject*) {
  Tick* its = reinterpret_cast<Tick*>(self);
  Py_ssize_t count = PyVectorcall_NARGS(flags);
  Py_ssize_t cell = count ? PyLong_AsSsize_t(arguments[0]) : -1;
  if (cell == -1 && PyErr_Occurred()) return nullptr;
  if (!its->rows || cell < 0 || cell >= its->cells.len / Py_ssize_t(sizeof(long long)))
    return PyErr_Format(PyExc_IndexError, "no such cell: %zd", cell);
  if (count > 1 && PyList_Append(its->rows, arguments[1]) < 0) return nullptr;
  long long at = now_ns();
  PyObject* time = PyLong_FromLongLong(at);
  if (!time) return nullptr;
  __atomic_store_n(static_cast<long long*>(its->cells.buf) + cell, at, __ATOMIC_RELEASE);
  if (PyList_Append(its->rows, time) == 0) return time;
  Py_DECREF(time);
  return nullptr;
}

int tick_init(PyObject* self, PyObject* arguments, PyObject*) {
  Tick* its = reinterpret_cast<Tick*>(self);
  PyObject* cells;
  if (!PyArg_ParseTuple(arguments, "O", &cells)) return -1;
  its->vectorcall = tick;
  return PyObject_GetBuffer(cells, &its->cells, PyBUF_WRITABLE);
}

void tick_dealloc(PyObject* self) {
  PyBuffer_Release(&reinterpret_cast<Tick*>(self)->cells);
  Py_CLEAR(reinterpret_cast<Tick*>(self)->rows);
  Py_TYPE(self)->tp_free(self);
}

// Another process may truncate the file of the cells; accessing a lost page then raises SIGBUS, which would end the
// program. In our ranges such a page is replaced by an anonymous one; any other SIGBUS is passed on.
const int MOST_RANGES = 256;
std::atomic<uintptr_t> range_begin[MOST_RANGES], range_end[MOST_RANGES];
uintptr_t page_size = 4096;

// A handler that the program sets later replaces ours, and may remember ours in order to restore it. So ours is
// installed before it again, at a level that passes on to this handler only: each handler is called, and restores the
// previous one, as it would without ours.
const int MOST_LEVELS = 8;
struct sigaction behind[MOST_LEVELS];
int levels = 0;

bool is_ours(uintptr_t at) {
  for (int i = 0; i < MOST_RANGES; i++)
    if (at >= range_begin[i].load() && at < range_end[i].load()) return true;
  return false;
}

// Uses only functions that are safe in a signal handler.
void handle_bus(const struct sigaction& next, int number, siginfo_t* info, void* context) {
  int error = errno;
  uintptr_t at = reinterpret_cast<uintptr_t>(info->si_addr);
  if (info->si_code > 0 && is_ours(at)) {
    void* page = reinterpret_cast<void*>(at / page_size * page_size);
    void* made = mmap(page, page_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    errno = error;
    if (made == page) return;
  }
  if (next.sa_flags & SA_RESETHAND) signal(number, SIG_DFL);
  if (next.sa_flags & SA_SIGINFO) return next.sa_sigaction(number, info, context);
  if (next.sa_handler == SIG_IGN && info->si_code <= 0) return;
  if (next.sa_handler != SIG_DFL && next.sa_handler != SIG_IGN) return next.sa_handler(number);
  signal(number, SIG_DFL);  // the failed instruction runs again
  if (info->si_code <= 0) raise(number);
}

template <int level>
void on_bus(int number, siginfo_t* info, void* context) {
  handle_bus(behind[level], number, info, context);
}

void (*const on_bus_at[MOST_LEVELS])(int, siginfo_t*, void*) = {
    on_bus<0>, on_bus<1>, on_bus<2>, on_bus<3>, on_bus<4>, on_bus<5>, on_bus<6>, on_bus<7>,
};

bool is_in_front(const struct sigaction& now) {
  for (int level = 0; level < levels; level++)
    if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_bus_at[level]) return true;
  return false;
}

bool stand_in_front() {
  struct sigaction now;
  if (sigaction(SIGBUS, nullptr, &now) != 0) return false;
  if (is_in_front(now)) return true;
  int level = 0;
  while (level < levels && (behind[level].sa_handler != now.sa_handler || behind[level].sa_flags != now.sa_flags))
    level++;
  if (level == MOST_LEVELS) return true;  // the program keeps setting handlers: its last one stays
  if (level == levels) behind[levels++] = now;  // never changed from now on: a handler of another thread may read it
  page_size = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  struct sigaction ours = {};
  ours.sa_sigaction = on_bus_at[level];
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&ours.sa_mask);
  return sigaction(SIGBUS, &ours, nullptr) == 0;
}

// A signal that ends the process by default writes its number and the time, and then takes its default action. Python
// does not know of this handler, so the program sees the default; its own handlers are not replaced.
struct Word {
  pid_t owner;  // a forked child shares the memory until it has a ring of its own
  long long *number, *at_ns;
};
const int ENDING[] = {SIGTERM, SIGHUP, SIGINT};
std::atomic<Word*> last_word;

// Uses only functions that are safe in a signal handler.
void on_ending(int number) {
  int error = errno;
  Word* its = last_word.load();
  if (its && its->owner == getpid()) {
    __atomic_store_n(its->at_ns, now_ns(), __ATOMIC_RELEASE);
    __atomic_store_n(its->number, static_cast<long long>(number), __ATOMIC_RELEASE);
  }
  signal(number, SIG_DFL);
  raise(number);  // it is blocked until this returns
  errno = error;
}

bool is_by(int number, void (*handler)(int)) {
  struct sigaction now;
  return sigaction(number, nullptr, &now) == 0 && !(now.sa_flags & SA_SIGINFO) && now.sa_handler == handler;
}

// Process 1, the first one of a container, is left out: these signals do not end it by default.
void stand_in_for_default() {
  struct sigaction ours = {};
  ours.sa_handler = on_ending;
  ours.sa_flags = SA_RESTART | SA_ONSTACK;
  sigemptyset(&ours.sa_mask);
  for (int number : ENDING)
    if (getpid() != 1 && is_by(number, SIG_DFL)) sigaction(number, &ours, nullptr);
}

PyObject* record_signals(PyObject*, PyObject* arguments) {
  unsigned long long number, at_ns;
  if (!PyArg_ParseTuple(arguments, "KK", &number, &at_ns)) return nullptr;
  Word* its = last_word.load();
  long long* there = reinterpret_cast<long long*>(number);
  if (!its || its->number != there || its->owner != getpid())  // never freed: a handler of another thread may read it
    last_word.store(new Word{getpid(), there, reinterpret_cast<long long*>(at_ns)});
  stand_in_for_default();
  Py_RETURN_NONE;
}

PyObject* stop_recording_signals(PyObject*, PyObject* arguments) {
  unsigned long long number;
  if (!PyArg_ParseTuple(arguments, "K", &number)) return nullptr;
  Word* its = last_word.load();
  if (its && its->number == reinterpret_cast<long long*>(number)) {
    last_word.store(nullptr);
    for (int ending : ENDING)
      if (is_by(ending, on_ending)) signal(ending, SIG_DFL);
  }
  Py_RETURN_NONE;
}

PyObject* guard(PyObject*, PyObject* arguments) {
  unsigned long long address, length;
  if (!PyArg_ParseTuple(arguments, "KK", &address, &length)) return nullptr;
  for (int i = 0; i < MOST_RANGES; i++)
    if (range_end[i].load() == 0) {
      if (!stand_in_front()) return PyErr_SetFromErrno(PyExc_OSError);
      range_begin[i].store(address), range_end[i].store(address + length);
      Py_RETURN_TRUE;
    }
  Py_RETURN_FALSE;
}

PyObject* stay_in_front(PyObject*, PyObject*) {
  stand_in_front();
  Py_RETURN_NONE;
}

PyObject* release(PyObject*, PyObject* arguments) {
  unsigned long long address;
  if (!PyArg_ParseTuple(arguments, "K", &address)) return nullptr;
  for (int i = 0; i < MOST_RANGES; i++)
    if (range_end[i].load() && range_begin[i].load() == address) range_end[i].store(0);
  Py_RETURN_NONE;
}

PyMethodDef functions[] = {
    {"guard", guard, METH_VARARGS, "(address, length): keep lost pages there from ending the process."},
    {"stay_in_front", stay_in_front, METH_NOARGS, "Install the handler before those set since `guard`."},
    {"release", release, METH_VARARGS, "(address): end the guard of that memory."},
    {"record_signals", record_signals, METH_VARARGS, "(address, address): write a signal's number and time there."},
    {"stop_recording_signals", stop_recording_signals, METH_VARARGS, "(address): write no signals there any more."},
    {},
};
PyMemberDef members[] = {{"rows", T_OBJECT, offsetof(Tick, rows), 0, "List of the call's launches."}, {}};
PyTypeObject type = {PyVarObject_HEAD_INIT(nullptr, 0)};
PyModuleDef module = {PyModuleDef_HEAD_INIT, "stepscope_ticks", nullptr, -1, functions,
                      nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit_stepscope_ticks() {
  type.tp_name = "stepscope_ticks.Tick";
  type.tp_basicsize = sizeof(Tick);
  type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL;
  type.tp_new = PyType_GenericNew, type.tp_init = tick_init, type.tp_dealloc = tick_dealloc;
  type.tp_call = PyVectorcall_Call, type.tp_vectorcall_offset = offsetof(Tick, vectorcall);
  type.tp_members = members;
  if (PyType_Ready(&type) < 0) return nullptr;
  PyObject* made = PyModule_Create(&module);
  if (made && PyModule_AddObjectRef(made, "Tick", reinterpret_cast<PyObject*>(&type)) < 0) Py_CLEAR(made);
  return made;
}
