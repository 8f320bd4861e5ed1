-- Common to all scripts of the store. ARGV: 1 what all keys begin with, 2 the caller's time in ms or
-- '' for the server's, 3 how many events to keep; what a script itself takes begins at 4.
-- Numbers go out as text: Lua would shorten them to 14 digits.
local prefix, history = ARGV[1], ARGV[3]
local state, feed = prefix .. 'state', prefix .. 'feed'
local time = redis.call('TIME')
local micros = time[1] * 1000000 + time[2]
local now = ARGV[2] == '' and math.floor(micros / 1000) or tonumber(ARGV[2])

local function text(number)
  return string.format('%.0f', number)
end

-- The position of the last event. Without one the store is empty: a life begins, and because it
-- begins at the time, its positions differ from those of every life before.
local cursor = tonumber(redis.call('HGET', state, 'cursor') or '')
if not cursor then
  cursor = micros
  redis.call('HSET', state, 'cursor', text(cursor), 'life', text(cursor), 'floor', '0')
end

-- Positions follow the time where they can: should the server lose its last writes, those that
-- come after never take the positions of the lost ones. Each event names the one before it. Whoever
-- emits saves before it returns.
local function emit(kind, id, document, lease, ...)
  local previous = cursor
  cursor = math.max(cursor + 1, micros)
  redis.call('XADD', feed, 'MAXLEN', '~', history, text(cursor) .. '-0',
    'p', text(previous), 'k', kind, 'i', id, 'd', document, 'l', lease, ...)
  return cursor
end

local function save()
  redis.call('HSET', state, 'cursor', text(cursor))
end

-- A mark that a worker is to leave comes last, where it has one.
local function worker_changed(worker, record, lease, leaving)
  if leaving == '1' then
    emit('worker_changed', worker, record, lease, 'm', leaving)
  else
    emit('worker_changed', worker, record, lease)
  end
end

-- Removes a worker after its instances. A key that comes back goes on beyond every version that
-- it may have had: the floor.
local function remove_worker(worker)
  local key = prefix .. 'worker:' .. worker
  local held = redis.call('SMEMBERS', key .. ':instances')
  table.sort(held)
  local floor = tonumber(redis.call('HGET', state, 'floor'))
  for _, name in ipairs(held) do
    floor = math.max(floor, redis.call('HGET', prefix .. 'instance:' .. name, 'version') + 1)
    redis.call('DEL', prefix .. 'instance:' .. name)
    redis.call('SREM', prefix .. 'instances', name)
    emit('instance_removed', name, '', '')
  end
  redis.call('HSET', state, 'floor', text(floor))
  redis.call('DEL', key, key .. ':instances')
  redis.call('ZREM', prefix .. 'workers', worker)
  emit('worker_removed', worker, '', '')
end
