-- worker, record, length of the lease in ms
local worker, record, lease = ARGV[4], ARGV[5], text(now + ARGV[6])
local key = prefix .. 'worker:' .. worker
local fresh = redis.call('EXISTS', key) == 0
redis.call('HSET', key, 'record', record, 'lease', lease)
redis.call('ZADD', prefix .. 'workers', lease, worker)
emit('worker_changed', worker, record, lease)
save()
return { lease, fresh and 1 or 0 }
