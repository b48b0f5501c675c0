// Starts the reading of CUDA tensors without Python, as `CudaReader` and `Arena.read_one` do.
//
// `OpenRows` are the rows of an arena that may be used on one stream without its lock. `Point` is what is the same in
// each reading of one point of a wrapper; a call takes rows, starts the kernel, and returns the group and the block. When
// the rows are closed or full, on another stream, and during a capture, it calls the reader in Python, or returns None if
// it has none.
#include <Python.h>

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <mutex>
#include <new>
#include <vector>

namespace {

// cuLaunchKernel and cuStreamIsCapturing of CUDA's driver; both return 0 on success.
using Launch = int (*)(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                       unsigned block_y, unsigned block_z, unsigned shared_bytes, void* stream, void** parameters,
                       void** extra);
using IsCapturing = int (*)(void* stream, int* status);

Launch launch_kernel;
IsCapturing is_capturing;
PyObject *raw_stream, *make_block, *s_data_ptr;

struct OpenRows {
  PyObject_HEAD
  std::mutex mutex;  // held from taking rows until the kernel is started; no Python runs meanwhile
  uint64_t base, row_bytes, stream;
  Py_ssize_t used, limit;
  PyObject* snapshot;  // null while closed
};

struct Point {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  PyObject *group, *reader, *device;
  OpenRows* rows;
  void* function;
  unsigned shared_bytes, threads, programs;
  Py_ssize_t tensors;
  std::vector<uint64_t> words;  // arguments of the kernel; those of the slots and addresses are set in each reading
  std::vector<bool> is_empty;   // whether a tensor has no elements, so that its address may be null
};

PyTypeObject rows_type = {PyVarObject_HEAD_INIT(nullptr, 0)};
PyTypeObject point_type = {PyVarObject_HEAD_INIT(nullptr, 0)};
constexpr size_t kMostWords = 200;
constexpr Py_ssize_t kFirstAddress = 2;  // after the slots and the table of views

PyObject* rows_new(PyTypeObject* type, PyObject*, PyObject*) {
  PyObject* self = type->tp_alloc(type, 0);
  if (self) new (&reinterpret_cast<OpenRows*>(self)->mutex) std::mutex;
  return self;
}

int rows_init(PyObject* self, PyObject* arguments, PyObject*) {
  OpenRows* its = reinterpret_cast<OpenRows*>(self);
  unsigned long long base, row_bytes;
  if (!PyArg_ParseTuple(arguments, "KKn", &base, &row_bytes, &its->limit)) return -1;
  its->base = base, its->row_bytes = row_bytes;
  return 0;
}

// A snapshot refers to its arena, which refers to its rows.
int rows_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(reinterpret_cast<OpenRows*>(self)->snapshot);
  return 0;
}

int rows_clear(PyObject* self) {
  Py_CLEAR(reinterpret_cast<OpenRows*>(self)->snapshot);
  return 0;
}

void rows_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  rows_clear(self);
  Py_TYPE(self)->tp_free(self);
}

void lock(OpenRows* its) {
  if (its->mutex.try_lock()) return;
  Py_BEGIN_ALLOW_THREADS
  its->mutex.lock();
  Py_END_ALLOW_THREADS
}

PyObject* rows_open(PyObject* self, PyObject* arguments) {
  OpenRows* its = reinterpret_cast<OpenRows*>(self);
  unsigned long long stream;
  Py_ssize_t used;
  PyObject* snapshot;
  if (!PyArg_ParseTuple(arguments, "KnO", &stream, &used, &snapshot)) return nullptr;
  Py_INCREF(snapshot);
  lock(its);
  PyObject* last = its->snapshot;
  its->stream = stream, its->used = used, its->snapshot = snapshot;
  its->mutex.unlock();
  Py_XDECREF(last);
  Py_RETURN_NONE;
}

PyObject* rows_close(PyObject* self, PyObject*) {
  OpenRows* its = reinterpret_cast<OpenRows*>(self);
  lock(its);
  PyObject* last = its->snapshot;
  const Py_ssize_t used = last ? its->used : -1;
  its->snapshot = nullptr;
  its->mutex.unlock();
  Py_XDECREF(last);
  return PyLong_FromSsize_t(used);
}

bool set_numbers(std::vector<uint64_t>* words, PyObject* numbers) {
  PyObject* fast = PySequence_Fast(numbers, "no sequence of numbers");
  if (!fast) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast) && !PyErr_Occurred(); i++)
    words->push_back(PyLong_AsUnsignedLongLongMask(PySequence_Fast_GET_ITEM(fast, i)));
  Py_DECREF(fast);
  return !PyErr_Occurred();
}

PyObject* read_point(PyObject* self, PyObject* const* arguments, size_t flags, PyObject*);

PyObject* point_new(PyTypeObject* type, PyObject*, PyObject*) {
  PyObject* self = type->tp_alloc(type, 0);
  if (!self) return nullptr;
  Point* its = reinterpret_cast<Point*>(self);
  new (&its->words) std::vector<uint64_t>;
  new (&its->is_empty) std::vector<bool>;
  its->vectorcall = read_point;
  return self;
}

int point_init(PyObject* self, PyObject* arguments, PyObject*) {
  Point* its = reinterpret_cast<Point*>(self);
  PyObject *group, *reader, *device, *rows, *counts, *numbers;
  unsigned long long function, table;
  Py_ssize_t takes;
  if (!PyArg_ParseTuple(arguments, "OOO!O!KIIIOnKO", &group, &reader, &PyLong_Type, &device, &rows_type, &rows,
                        &function, &its->shared_bytes, &its->threads, &its->programs, &counts, &takes, &table, &numbers))
    return -1;
  std::vector<uint64_t> elements, rest;
  if (!set_numbers(&elements, counts) || !set_numbers(&rest, numbers)) return -1;
  its->tensors = static_cast<Py_ssize_t>(elements.size());
  if (takes < its->tensors || kFirstAddress + takes + rest.size() + 2 > kMostWords)
    return PyErr_SetString(PyExc_ValueError, "too many tensors"), -1;
  for (uint64_t count : elements) its->is_empty.push_back(!count);
  its->words.assign(kFirstAddress + takes, 0);
  its->words[1] = table;
  its->words.insert(its->words.end(), rest.begin(), rest.end());
  its->words.insert(its->words.end(), 2, 0);  // no scratch memory
  its->function = reinterpret_cast<void*>(static_cast<uintptr_t>(function));
  Py_INCREF(group), Py_INCREF(reader), Py_INCREF(device), Py_INCREF(rows);
  Py_XSETREF(its->group, group); Py_XSETREF(its->reader, reader); Py_XSETREF(its->device, device);
  Py_XSETREF(its->rows, reinterpret_cast<OpenRows*>(rows));
  return 0;
}

// The group and the reader refer to their point, so that all are visible to the garbage collector.
int point_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(reinterpret_cast<Point*>(self)->group);
  Py_VISIT(reinterpret_cast<Point*>(self)->reader);
  return 0;
}

int point_clear(PyObject* self) {
  Py_CLEAR(reinterpret_cast<Point*>(self)->group);
  Py_CLEAR(reinterpret_cast<Point*>(self)->reader);
  return 0;
}

void point_dealloc(PyObject* self) {
  Point* its = reinterpret_cast<Point*>(self);
  PyObject_GC_UnTrack(self);
  Py_CLEAR(its->group); Py_CLEAR(its->reader); Py_CLEAR(its->device); Py_CLEAR(its->rows);
  its->words.~vector();
  its->is_empty.~vector();
  Py_TYPE(self)->tp_free(self);
}

// Sets the addresses of the tensors among `words`. Returns 1, 0 if memory was freed, or -1 with an error set.
int find_addresses(Point* its, PyObject* values, uint64_t* words) {
  for (Py_ssize_t i = 0; i < its->tensors; i++) {
    PyObject* tensor = PySequence_Fast_GET_ITEM(values, i);
    PyObject* address = PyObject_VectorcallMethod(s_data_ptr, &tensor, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
    if (!address) return -1;
    words[kFirstAddress + i] = PyLong_AsUnsignedLongLong(address);
    Py_DECREF(address);
    if (PyErr_Occurred()) return -1;
    if (!words[kFirstAddress + i] && !its->is_empty[i]) return 0;
  }
  return 1;
}

// Starts the kernel with rows that are open for `stream`. Returns the first of them, or -1 if Python must read. Sets
// `snapshot` to the one that the rows belong to, as a new reference.
Py_ssize_t start(Point* its, uint64_t stream, uint64_t* words, PyObject** snapshot) {
  OpenRows* rows = its->rows;
  if (!rows->mutex.try_lock()) return -1;
  int capture = 0;
  if (!rows->snapshot || rows->stream != stream || rows->used + its->tensors > rows->limit ||
      is_capturing(reinterpret_cast<void*>(stream), &capture) || capture) {
    rows->mutex.unlock();
    return -1;
  }
  const Py_ssize_t first = rows->used;
  rows->used += its->tensors;
  *snapshot = rows->snapshot;
  Py_INCREF(*snapshot);
  words[0] = rows->base + first * rows->row_bytes;
  void* parameters[kMostWords];
  for (size_t i = 0; i < its->words.size(); i++) parameters[i] = words + i;
  int failed;
  Py_BEGIN_ALLOW_THREADS
  failed = launch_kernel(its->function, its->programs, 1, 1, its->threads, 1, 1, its->shared_bytes,
                         reinterpret_cast<void*>(stream), parameters, nullptr);
  rows->mutex.unlock();
  Py_END_ALLOW_THREADS
  if (!failed) return first;
  Py_CLEAR(*snapshot);
  return -1;
}

// Reads the tensors `values`, and returns the group and the block.
PyObject* read_point(PyObject* self, PyObject* const* arguments, size_t flags, PyObject*) {
  Point* its = reinterpret_cast<Point*>(self);
  if (PyVectorcall_NARGS(flags) != 1 || !(PyTuple_Check(arguments[0]) || PyList_Check(arguments[0])))
    return PyErr_Format(PyExc_TypeError, "a sequence of tensors is needed");
  if (PySequence_Fast_GET_SIZE(arguments[0]) != its->tensors)
    return PyErr_Format(PyExc_ValueError, "not %zd tensors", its->tensors);
  uint64_t words[kMostWords];
  memcpy(words, its->words.data(), its->words.size() * sizeof(uint64_t));
  PyObject* stream = PyObject_CallOneArg(raw_stream, its->device);
  if (!stream) return nullptr;
  const uint64_t handle = PyLong_AsUnsignedLongLong(stream);
  Py_DECREF(stream);
  if (PyErr_Occurred()) return nullptr;
  const int are_there = find_addresses(its, arguments[0], words);
  if (are_there < 0) return nullptr;
  PyObject *snapshot = nullptr, *block;
  const Py_ssize_t first = are_there ? start(its, handle, words, &snapshot) : -1;
  if (first < 0) {
    if (its->reader == Py_None) Py_RETURN_NONE;
    block = PyObject_CallOneArg(its->reader, arguments[0]);
  } else {
    block = PyObject_CallFunction(make_block, "Onn", snapshot, first, its->tensors);
    Py_DECREF(snapshot);
  }
  if (!block) return nullptr;
  PyObject* reading = PyTuple_Pack(2, its->group, block);
  Py_DECREF(block);
  return reading;
}

PyObject* set_up(PyObject*, PyObject* arguments) {
  unsigned long long launch, capturing;
  if (!PyArg_ParseTuple(arguments, "KKOO", &launch, &capturing, &raw_stream, &make_block)) return nullptr;
  launch_kernel = reinterpret_cast<Launch>(static_cast<uintptr_t>(launch));
  is_capturing = reinterpret_cast<IsCapturing>(static_cast<uintptr_t>(capturing));
  Py_INCREF(raw_stream), Py_INCREF(make_block);
  Py_RETURN_NONE;
}

PyMethodDef functions[] = {
    {"set_up", set_up, METH_VARARGS, "(address of cuLaunchKernel, of cuStreamIsCapturing, stream of a device, block)"},
    {},
};
PyMethodDef rows_methods[] = {
    {"open", rows_open, METH_VARARGS, "(stream, rows that are used, snapshot): let points use the rows that follow."},
    {"close", rows_close, METH_NOARGS, "Let points use no more rows; return how many are used, or -1 if closed."},
    {},
};
PyModuleDef module = {PyModuleDef_HEAD_INIT, "stepscope_cuda_readings", nullptr, -1, functions,
                      nullptr, nullptr, nullptr, nullptr};

void define_types() {
  rows_type.tp_name = "stepscope_cuda_readings.OpenRows";
  rows_type.tp_basicsize = sizeof(OpenRows);
  rows_type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC;
  rows_type.tp_new = rows_new, rows_type.tp_init = rows_init, rows_type.tp_dealloc = rows_dealloc;
  rows_type.tp_traverse = rows_traverse, rows_type.tp_clear = rows_clear;
  rows_type.tp_methods = rows_methods;
  point_type.tp_name = "stepscope_cuda_readings.Point";
  point_type.tp_basicsize = sizeof(Point);
  point_type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL;
  point_type.tp_new = point_new, point_type.tp_init = point_init, point_type.tp_dealloc = point_dealloc;
  point_type.tp_traverse = point_traverse, point_type.tp_clear = point_clear;
  point_type.tp_call = PyVectorcall_Call, point_type.tp_vectorcall_offset = offsetof(Point, vectorcall);
}

}  // namespace

PyMODINIT_FUNC PyInit_stepscope_cuda_readings() {
  define_types();
  for (PyTypeObject* type : {&rows_type, &point_type})
    if (PyType_Ready(type) < 0) return nullptr;
  if (!(s_data_ptr = PyUnicode_InternFromString("data_ptr"))) return nullptr;
  PyObject* made = PyModule_Create(&module);
  if (made && (PyModule_AddObjectRef(made, "OpenRows", reinterpret_cast<PyObject*>(&rows_type)) < 0 ||
               PyModule_AddObjectRef(made, "Point", reinterpret_cast<PyObject*>(&point_type)) < 0))
    Py_CLEAR(made);
  return made;
}
