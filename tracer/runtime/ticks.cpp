// What the code of a wrapper calls before and after each launch: it reads the clock, and writes the time into the rows
// of the call and into a cell of the launch ring. The same statements in Python are in tracer/inductor/code_swap.py.
#include <Python.h>

#include <structmember.h>  // members of types, before Python 3.12
#include <time.h>

namespace {

struct Tick {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  Py_buffer cells;
  PyObject* rows;
};

// That of time.perf_counter_ns on Linux.
long long now_ns() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000000000LL + time.tv_nsec;
}

// (cell) or (cell, site): of a launch that has returned, or that is about to begin.
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

PyMemberDef members[] = {{"rows", T_OBJECT, offsetof(Tick, rows), 0, "Of the call: a list."}, {}};
PyTypeObject type = {PyVarObject_HEAD_INIT(nullptr, 0)};
PyModuleDef module = {PyModuleDef_HEAD_INIT, "stepscope_ticks", nullptr, -1, nullptr,
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
