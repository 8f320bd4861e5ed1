"""Writes the files beside it, which the tests read: `python make.py` with NumPy."""

import os

import numpy as np

d = os.path.join(os.path.dirname(os.path.abspath(__file__)), "")
x=np.arange(12,dtype='<f4').reshape(6,2)/4
np.save(d+'floats.npy',x)
np.save(d+'fortran.npy',np.asfortranarray(x))
np.save(d+'big_endian.npy',x.astype('>f4'))
np.save(d+'doubles.npy',x.astype('<f8'))
np.save(d+'empty.npy',x[:0])
np.save(d+'one_dimension.npy',np.arange(6,dtype='<f4'))
np.save(d+'text.npy',np.array([['a','bc'],['é€',''],['\U0001f600','x']]))
np.save(d+'bytes.npy',np.array([[b'a',b'bc'],[b'\xff',b'']]))
np.save(d+'structured.npy',np.array([(1,2.0)],dtype=[('a','<i4'),('b','<f4')]))
np.savez(d+'two.npz',x=x,n=np.arange(6,dtype='<i8'))
np.savez(d+'uneven.npz',x=x,n=np.arange(5,dtype='<i8'))
np.savez(d+'foreign.npz',x=x,z=x)
np.savez(d+'missing.npz',x=x)
np.savez_compressed(d+'compressed.npz',x=x,n=np.arange(6,dtype='<i8'))
with open(d+'version2.npy','wb') as f: np.lib.format.write_array(f,x,version=(2,0))
for n in ['bool','uint8','uint16','uint32','uint64','int8','int16','int32','int64','float16','float32','float64']:
    np.save(d+'type_'+n+'.npy', np.array([[0,1],[1,0]]).astype(n))
